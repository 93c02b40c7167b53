"""Pictures of schedules: for the terminal, as SVG, as an interactive page."""
