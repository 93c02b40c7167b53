"""Builders: from profiles and pipelines to problems."""
