'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const canvas = document.getElementById('chart'), paint = canvas.getContext('2d');
const view = document.getElementById('view'), spacer = document.getElementById('spacer');
const tip = document.getElementById('tip'), said = document.getElementById('said');
const rows = data.rows.map(unpack), LEFT = 64, RIGHT = 16, AXIS = 26;
const few = rows.length <= 32, BAR = few ? 22 : 12, BAND = data.changes ? (few ? 14 : 8) : 0;
const STEP = BAR + BAND + (few ? 9 : 6), height = AXIS + rows.length * STEP + 4;
const colours = data.looks.map(look => [1, 3, 5].map(k => parseInt(look[2].substr(k, 2), 16)));
let from = data.start, to = data.end, wide = 0, tall = 0, chosen = null, drawn = false;

function unpack(row) {  // look, stage, microbatch, time since the last end, duration
  const n = row.length / 5, ops = {
    n, look: new Int32Array(n), stage: new Int32Array(n), microbatch: new Int32Array(n),
    start: new Float64Array(n), end: new Float64Array(n)};
  let time = data.start;
  for (let i = 0; i < n; i++) {
    ops.look[i] = row[5 * i]; ops.stage[i] = row[5 * i + 1]; ops.microbatch[i] = row[5 * i + 2];
    ops.start[i] = time += row[5 * i + 3]; ops.end[i] = time += row[5 * i + 4];
  }
  if (data.changes) levels(ops);
  return ops;
}
function levels(ops) {  // memory after each change; at one time falls come before rises
  const changes = [];
  for (let i = 0; i < ops.n; i++) {
    const change = data.changes[data.looks[ops.look[i]][0]][ops.stage[i]];
    changes.push([change > 0 ? ops.start[i] : ops.end[i], change]);
  }
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let level = 0;
  ops.time = Float64Array.from(changes, change => change[0]);
  ops.level = Float64Array.from(changes, change => level += change[1]);
}
function unit(value, scales, names, digits) {
  let k = 0;
  while (k < scales.length - 1 && Math.abs(value) < scales[k]) k++;
  return +(value / scales[k]).toPrecision(digits) + ' ' + names[k];
}
const ns = value => unit(value, [1e9, 1e6, 1e3, 1], ['s', 'ms', 'us', 'ns'], 6);
const bytes = value => unit(value, [2 ** 40, 2 ** 30, 2 ** 20, 2 ** 10, 1],
  ['TiB', 'GiB', 'MiB', 'KiB', 'B'], 4);
const x = time => LEFT + (time - from) / (to - from) * (wide - LEFT - RIGHT);
const time = at => from + (at - LEFT) / (wide - LEFT - RIGHT) * (to - from);
const top_of = row => AXIS + row * STEP - view.scrollTop;

function after(values, limit) {  // first index whose value is above limit
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}
function draw() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => { drawn = false; render(); });
}
function render() {
  const dots = window.devicePixelRatio || 1, css = getComputedStyle(document.documentElement);
  const tone = name => css.getPropertyValue('--' + name);
  wide = view.clientWidth; tall = view.clientHeight;
  canvas.width = Math.round(wide * dots); canvas.height = Math.round(tall * dots);
  canvas.style.width = wide + 'px'; canvas.style.height = tall + 'px';
  spacer.style.height = Math.max(0, height - tall) + 'px';
  paint.setTransform(dots, 0, 0, dots, 0, 0);
  paint.clearRect(0, 0, wide, tall);
  paint.textBaseline = 'middle';
  const marks = ticks(Math.max(2, Math.floor((wide - LEFT) / 130)));
  paint.fillStyle = tone('line');
  for (const mark of marks) paint.fillRect(Math.round(x(mark)), AXIS - 5, 1, height);
  const first = Math.max(0, Math.floor(view.scrollTop / STEP));
  const last = Math.min(rows.length, Math.ceil((view.scrollTop + tall) / STEP));
  for (let row = first; row < last; row++) render_row(row, dots, tone);
  if (chosen) {
    const ops = rows[chosen[0]], a = x(ops.start[chosen[1]]), b = x(ops.end[chosen[1]]);
    paint.save(); clip(); paint.strokeStyle = tone('text'); paint.lineWidth = 2;
    paint.strokeRect(a, top_of(chosen[0]) - 1, Math.max(2, b - a), BAR + 2); paint.restore();
  }
  paint.fillStyle = tone('card'); paint.fillRect(0, 0, wide, AXIS - 5);
  paint.fillStyle = tone('muted'); paint.font = '11px system-ui,sans-serif';
  for (const mark of marks) {
    const label = ns(mark), half = paint.measureText(label).width / 2;
    paint.textAlign = 'center';
    paint.fillText(label, Math.min(wide - half, Math.max(half, x(mark))), 9);
  }
}
function ticks(most) {
  let step = 1;
  for (let k = 0; (to - from) / step >= most; k++) step *= k % 3 === 1 ? 2.5 : 2;
  const marks = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) marks.push(k * step);
  return marks;
}
function clip() {
  paint.beginPath(); paint.rect(LEFT, AXIS - 5, wide - LEFT - RIGHT, tall); paint.clip();
}
function render_row(row, dots, tone) {
  const ops = rows[row], top = top_of(row);
  paint.fillStyle = tone('text'); paint.font = '12px system-ui,sans-serif';
  paint.textAlign = 'right';
  paint.fillText((rows.length < 1000 ? 'rank ' : '') + row, LEFT - 8, top + BAR / 2);
  paint.save(); clip();
  paint.fillStyle = tone('track'); paint.fillRect(LEFT, top, wide - LEFT - RIGHT, BAR);
  const columns = Math.ceil((wide - LEFT - RIGHT) * dots), mixed = new Float32Array(4 * columns);
  let any = false;
  paint.font = '10px system-ui,sans-serif'; paint.textAlign = 'center';
  for (let i = after(ops.end, from); i < ops.n && ops.start[i] < to; i++) {
    const a = x(ops.start[i]), b = x(ops.end[i]), look = data.looks[ops.look[i]];
    if ((b - a) * dots < 2) { any = true; mix(mixed, a, b, dots, columns, ops.look[i]); continue; }
    paint.fillStyle = look[2];
    paint.fillRect(a, top, b - a > 3 ? b - a - 0.7 : b - a, BAR);
    const left = Math.max(a, LEFT), room = Math.min(b, wide - RIGHT) - left;
    const name = String(ops.microbatch[i]);
    if (room > 3 + 6 * name.length) {
      paint.fillStyle = look[3];
      const long = look[0] + name + ' stage ' + ops.stage[i];
      paint.fillText(room > 8 * long.length ? long : name, left + room / 2, top + BAR / 2 + 0.5);
    }
  }
  if (any) lay(mixed, columns, dots, top);
  if (data.changes) render_memory(ops, row, top + BAR + 2, tone);
  paint.restore();
}
function mix(mixed, a, b, dots, columns, look) {  // ops narrower than a pixel share it
  const low = Math.max(0, (a - LEFT) * dots), high = Math.min(columns, (b - LEFT) * dots);
  for (let c = Math.floor(low); c < high; c++) {
    const share = Math.min(high, c + 1) - Math.max(low, c);
    for (let k = 0; k < 3; k++) mixed[4 * c + k] += share * colours[look][k];
    mixed[4 * c + 3] += share;
  }
}
function lay(mixed, columns, dots, top) {
  const strip = document.createElement('canvas');
  strip.width = columns; strip.height = 1;
  const pen = strip.getContext('2d'), image = pen.createImageData(columns, 1);
  for (let c = 0; c < columns; c++) {
    const share = mixed[4 * c + 3];
    if (!share) continue;
    for (let k = 0; k < 3; k++) image.data[4 * c + k] = mixed[4 * c + k] / share;
    image.data[4 * c + 3] = 255 * Math.min(1, share);
  }
  pen.putImageData(image, 0, 0);
  paint.imageSmoothingEnabled = false;
  paint.drawImage(strip, 0, 0, columns, 1, LEFT, top, columns / dots, BAR);
}
function render_memory(ops, row, top, tone) {
  const scale = BAND / data.top, base = top + BAND;
  let k = after(ops.time, from), level = k ? ops.level[k - 1] : 0;
  paint.beginPath(); paint.moveTo(LEFT, base); paint.lineTo(LEFT, base - level * scale);
  for (; k < ops.n && ops.time[k] < to; k++) {
    const at = x(ops.time[k]);
    paint.lineTo(at, base - level * scale); level = ops.level[k];
    paint.lineTo(at, base - level * scale);
  }
  paint.lineTo(x(to), base - level * scale); paint.lineTo(x(to), base); paint.closePath();
  paint.fillStyle = tone('memory'); paint.fill();
  if (!data.limits) return;
  const y = Math.round(base - data.limits[row] * scale) + 0.5;
  paint.strokeStyle = tone('limit'); paint.lineWidth = 1; paint.setLineDash([5, 3]);
  paint.beginPath(); paint.moveTo(LEFT, y); paint.lineTo(wide - RIGHT, y); paint.stroke();
  paint.setLineDash([]);
}
function show(a, b) {  // keep the part shown inside the schedule, and not below 1 ns
  const span = Math.min(data.end - data.start, Math.max(1, b - a));
  from = Math.min(data.end - span, Math.max(data.start, a)); to = from + span;
  hide(); draw();
}
function zoom(factor, at) { show(at - (at - from) * factor, at + (to - at) * factor); }
const middle = () => (from + to) / 2;
function memory_at(ops, when) {
  if (!data.changes) return '';
  const k = after(ops.time, when);
  return '\nmemory ' + bytes(k ? ops.level[k - 1] : 0);
}
function describe(row, i) {
  const ops = rows[row], name = data.kinds[data.looks[ops.look[i]][0]];
  return `${name}, microbatch ${ops.microbatch[i]}, stage ${ops.stage[i]}, rank ${row}\n` +
    `${ns(ops.start[i])} to ${ns(ops.end[i])}, ${ns(ops.end[i] - ops.start[i])} long` +
    memory_at(ops, ops.start[i]);
}
function idle(row, when) {
  const ops = rows[row], next = after(ops.start, when);
  const a = next ? ops.end[next - 1] : data.start, b = next < ops.n ? ops.start[next] : data.end;
  return `idle, rank ${row}\n${ns(a)} to ${ns(b)}, ${ns(b - a)} long` + memory_at(ops, when);
}
function hide() { tip.style.display = 'none'; }
function hover(event) {
  const box = canvas.getBoundingClientRect(), px = event.clientX - box.left;
  const row = Math.floor((event.clientY - box.top - AXIS + view.scrollTop) / STEP);
  if (row < 0 || row >= rows.length || px < LEFT || px > wide - RIGHT) return hide();
  const when = time(px), i = after(rows[row].end, when);
  const hit = i < rows[row].n && rows[row].start[i] <= when;
  tip.textContent = hit ? describe(row, i) : idle(row, when);
  tip.style.display = 'block';
  const left = event.clientX + 14, below = event.clientY + 16;
  tip.style.left = Math.min(left, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = (below + tip.offsetHeight < innerHeight ? below :
    event.clientY - tip.offsetHeight - 10) + 'px';
}
function choose(row, i) {
  if (!rows[row] || !rows[row].n) return;
  chosen = [row, Math.min(rows[row].n - 1, Math.max(0, i))];
  const ops = rows[row], a = ops.start[chosen[1]], b = ops.end[chosen[1]];
  if (a < from || b > to) show((a + b - to + from) / 2, (a + b + to - from) / 2);
  const top = AXIS + row * STEP;
  if (top - AXIS < view.scrollTop) view.scrollTop = top - AXIS;
  if (top + STEP > view.scrollTop + tall) view.scrollTop = top + STEP - tall;
  said.textContent = describe(row, chosen[1]).replaceAll('\n', ' · ');
  draw();
}
function step(rank, by) {
  if (!chosen) return choose(0, 0);
  const [row, i] = chosen;
  if (!rank) return choose(row, i + by);
  const next = rows[row + rank];
  if (next) choose(row + rank, after(next.end, rows[row].start[i]));
}
let held = null;
canvas.addEventListener('pointerdown', event => {
  held = [event.clientX, event.clientY, from, to, view.scrollTop, false];
  canvas.setPointerCapture(event.pointerId); canvas.classList.add('held');
});
canvas.addEventListener('pointermove', event => {
  if (!held) return hover(event);
  const dx = event.clientX - held[0], dy = event.clientY - held[1];
  if (Math.abs(dx) + Math.abs(dy) > 4) held[5] = true;
  const by = dx / (wide - LEFT - RIGHT) * (held[3] - held[2]);
  if (event.pointerType !== 'touch') view.scrollTop = held[4] - dy;
  show(held[2] - by, held[3] - by);
});
function release(event) {
  if (held && !held[5] && event.type === 'pointerup') {
    const box = canvas.getBoundingClientRect(), when = time(event.clientX - box.left);
    const row = Math.floor((event.clientY - box.top - AXIS + view.scrollTop) / STEP);
    if (rows[row]) choose(row, after(rows[row].end, when));
  }
  held = null; canvas.classList.remove('held');
}
canvas.addEventListener('pointerup', release);
canvas.addEventListener('pointercancel', release);
canvas.addEventListener('pointerleave', hide);
canvas.addEventListener('wheel', event => {
  const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  const whole = to - from >= data.end - data.start;
  if (whole && (sideways || event.deltaY > 0)) return;  // nothing to do: let the page scroll
  event.preventDefault();
  const scale = event.deltaMode ? 30 : 1, box = canvas.getBoundingClientRect();
  if (sideways) {
    const by = (event.deltaX || event.deltaY) * scale / wide * (to - from);
    return show(from + by, to + by);
  }
  const at = Math.min(to, Math.max(from, time(event.clientX - box.left)));
  zoom(Math.exp(event.deltaY * scale * 0.002), at);
}, {passive: false});
const keys = {
  '+': () => zoom(0.7, middle()), '=': () => zoom(0.7, middle()), '-': () => zoom(1.4, middle()),
  '0': () => show(data.start, data.end), Escape: () => { chosen = null; hide(); draw(); },
  Home: () => show(data.start, data.start + to - from),
  End: () => show(data.end - to + from, data.end),
  ArrowLeft: shift => shift ? step(0, -1) : show(from - (to - from) / 8, to - (to - from) / 8),
  ArrowRight: shift => shift ? step(0, 1) : show(from + (to - from) / 8, to + (to - from) / 8),
  ArrowUp: () => step(-1, 0), ArrowDown: () => step(1, 0)};
view.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault(); keys[event.key](event.shiftKey);
});
view.addEventListener('scroll', draw);
document.getElementById('in').addEventListener('click', keys['+']);
document.getElementById('out').addEventListener('click', keys['-']);
document.getElementById('all').addEventListener('click', keys['0']);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
view.style.height = `min(72vh, ${height}px)`;
new ResizeObserver(draw).observe(view);
