// A client of the display (docs/display-protocol.md) over a WebSocket, and the list of all clients.
"use strict";

const by = (id) => document.getElementById(id);
const token = location.hash.slice(1);
const query = token ? `?token=${token}` : "";
const HELLO = 1, DEFINE = 2, ADD = 3, VIEW = 6, DISPLAY = 8, PICTURE = 9, PIXELS = 132, REFUSED = 133;
const ROOT = 0, INVERTER = 2, ROW = 3;
const SIZES = { array: 400, chip: 400, polygon: 800 };
const RATES = [1200, 9600, 56e3, 1e6, 10e6, 100e6, 1e9, null];
/// Bytes that are collected before they are sent.
const CHUNK = 60000;

class Display {
  constructor(onEnd) {
    this.waiting = new Map();
    this.sequence = 0;
    this.out = [];
    this.outLength = 0;
    this.input = new Uint8Array(0);
    this.counts = { bytes: 0, messages: 0, trips: 0 };
    this.socket = new WebSocket(`ws://${location.host}/display${query}`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = (event) => this.receive(event.data);
    this.socket.onclose = () => {
      for (const { reject } of this.waiting.values()) reject(new Error("the display is gone"));
      this.waiting.clear();
      onEnd();
    };
    this.opened = new Promise((resolve) => { this.socket.onopen = resolve; });
  }

  // Sends a message later, with others; a promise of its reply, if one is wanted.
  request(opcode, body, isWanted = false) {
    const message = new Uint8Array(8 + body.byteLength), head = new DataView(message.buffer);
    head.setUint8(0, opcode);
    head.setUint8(1, isWanted ? 1 : 0);
    head.setUint16(2, this.sequence, true);
    head.setUint32(4, body.byteLength, true);
    message.set(body, 8);
    this.out.push(message);
    this.outLength += message.length;
    this.counts.messages += 1;
    const sequence = this.sequence;
    this.sequence = (this.sequence + 1) % 65536;
    const reply = isWanted
      ? new Promise((resolve, reject) => this.waiting.set(sequence, { resolve, reject })) : null;
    if (this.outLength > CHUNK) this.flush();
    return reply;
  }

  flush() {
    if (this.outLength === 0 || this.socket.readyState !== WebSocket.OPEN) return;
    const all = new Uint8Array(this.outLength);
    let at = 0;
    for (const message of this.out) { all.set(message, at); at += message.length; }
    this.counts.bytes += at;
    this.socket.send(all);
    this.out = [];
    this.outLength = 0;
  }

  // Waits for a reply, with nothing else to do.
  async wait(reply) {
    this.flush();
    this.counts.trips += 1;
    return reply;
  }

  receive(data) {
    if (typeof data === "string") { this.client = JSON.parse(data).client; return; }
    this.counts.bytes += data.byteLength;
    const all = new Uint8Array(this.input.length + data.byteLength);
    all.set(this.input);
    all.set(new Uint8Array(data), this.input.length);
    let at = 0;
    const view = new DataView(all.buffer);
    while (all.length - at >= 8) {
      const length = view.getUint32(at + 4, true);
      if (all.length - at < 8 + length) break;
      this.answer(view.getUint8(at), view.getUint16(at + 2, true), all.slice(at + 8, at + 8 + length));
      at += 8 + length;
    }
    this.input = all.slice(at);
  }

  answer(opcode, sequence, body) {
    const waiting = this.waiting.get(sequence);
    this.waiting.delete(sequence);
    if (opcode === REFUSED) {
      const code = new DataView(body.buffer).getUint16(0, true);
      say(`the display refused a message (code ${code} of docs/display-protocol.md)`);
      waiting?.reject(new Error("refused"));
    } else {
      waiting?.resolve(opcode === PIXELS ? body : null);
    }
  }

  link(delay, rate) { this.socket.send(JSON.stringify({ delay_ms: delay, rate })); }
}

const words = (...numbers) => new Uint8Array(Uint32Array.from(numbers).buffer);
const both = (head, tail) => { const all = new Uint8Array(head.length + tail.length); all.set(head); all.set(tail, head.length); return all; };
const item = (kind, style, a, b, c, d) => words(kind | style << 8, a, b, c, d);
const rectangle = (color, stipple, x, y, width, height) => item(2, color | stipple << 4, x, y, x + width, y + height);
const vector = (x0, y0, x1, y1) => item(1, 1, x0, y0, x1, y1);
const call = (symbol, x, y) => item(5, 0, x, y, symbol, 0);

// An inverter as Mead and Conway draw one, after crates/display/src/workload.rs: color, stipple, x, y, width, height.
const INVERTER_ITEMS = [
  [2, 1, 0, 4, 78, 12], [2, 1, 0, 48, 78, 12], [4, 3, 28, 6, 8, 52], [4, 3, 24, 12, 16, 8], [4, 3, 24, 44, 16, 8],
  [5, 4, 22, 16, 20, 14], [3, 2, 20, 18, 24, 8], [3, 2, 40, 18, 6, 16], [4, 3, 36, 28, 10, 6], [3, 2, 4, 38, 40, 4],
  [3, 2, 4, 30, 4, 12], [3, 2, 0, 30, 8, 4], [4, 3, 36, 30, 20, 4], [2, 1, 52, 26, 8, 12], [2, 1, 56, 30, 22, 4],
  [3, 2, 54, 28, 4, 8], [3, 2, 60, 28, 6, 8], [5, 4, 64, 6, 8, 8], [5, 4, 64, 50, 8, 8], [4, 3, 66, 8, 4, 4],
  [2, 1, 28, 6, 8, 8], [4, 3, 28, 6, 8, 8], [3, 2, 30, 8, 4, 4], [2, 1, 28, 50, 8, 8], [4, 3, 28, 50, 8, 8], [3, 2, 30, 52, 4, 4],
];
const inverter = (dx, dy) => INVERTER_ITEMS.map(([color, stipple, x, y, w, h]) => rectangle(color, stipple, x + dx, y + dy, w, h));
const corners = (n, c, r) => Array.from({ length: n }, (_, i) =>
  [Math.round(c + r * Math.cos(2 * Math.PI * i / n)), Math.round(c + r * Math.sin(2 * Math.PI * i / n))]);

// Symbols of a drawing with their items, the one that is shown last, and how many items that draws.
function symbolsOf(drawing, isStructured) {
  if (drawing === "polygon") {
    const at = corners(36, 400, 350);
    const items = at.flatMap(([x, y], i) => at.slice(i + 1).map(([u, v]) => vector(x, y, u, v)));
    return { symbols: [[ROOT, items]], drawn: items.length };
  }
  if (drawing === "chip") {
    const side = 197, row = Array.from({ length: side }, (_, i) => call(INVERTER, 80 * i, 0));
    const rows = Array.from({ length: side }, (_, i) => call(ROW, 0, 66 * i));
    return { symbols: [[INVERTER, inverter(0, 0)], [ROW, row], [ROOT, rows]], drawn: side * side * 26 };
  }
  const places = Array.from({ length: 30 }, (_, i) => [80 * (i % 5), 66 * Math.floor(i / 5)]);
  const symbols = isStructured
    ? [[INVERTER, inverter(0, 0)], [ROOT, places.map(([x, y]) => call(INVERTER, x, y))]]
    : [[ROOT, places.flatMap(([x, y]) => inverter(x, y))]];
  return { symbols, drawn: 780 };
}

let display, isRunning = true, port = { x: 0, y: 0, scale: 65536 };

const say = (text) => { by("state").textContent = text; };
const round = (number) => number.toLocaleString("en", { maximumSignificantDigits: 3 });
const seconds = (s) => s < 1 ? `${round(s * 1000)} ms` : `${round(s)} s`;
const sizeNow = () => SIZES[by("drawing").value];

function view() {
  const body = new DataView(new ArrayBuffer(24)), size = sizeNow();
  [[0, 0], [4, ROOT], [12, port.x], [16, port.y], [20, port.scale]].forEach(([at, n]) => body.setInt32(at, n, true));
  body.setUint16(8, size, true);
  body.setUint16(10, size, true);
  display.request(VIEW, new Uint8Array(body.buffer));
}

const show = (isWhole, isWanted = true) => display.request(DISPLAY, words(0, isWhole ? 1 : 0), isWanted);

// Builds the drawing in the mode that is chosen and waits for the proof that it is drawn; how many items that were.
async function draw(drawing, mode) {
  const { symbols, drawn } = symbolsOf(drawing, mode === "structured");
  const isOneByOne = mode === "incremental" || mode === "pipelined", isWaiting = mode === "incremental";
  const send = async (opcode, body) => {
    const reply = display.request(opcode, body, isWaiting);
    if (isWaiting) await display.wait(reply);
  };
  let isFirst = true;
  await send(DEFINE, words(ROOT));
  view();
  for (const [symbol, items] of symbols) {
    if (symbol !== ROOT) await send(DEFINE, words(symbol));
    if (!isOneByOne) {
      display.request(ADD, both(words(symbol, items.length), items.reduce((all, one, i) => { all.set(one, 20 * i); return all; }, new Uint8Array(20 * items.length))));
      continue;
    }
    for (const one of items) {
      if (!isRunning) throw new Error("paused");
      await send(ADD, both(words(symbol, 1), one));
      if (symbol === ROOT) await send(DISPLAY, words(0, isFirst ? 1 : 0));
      isFirst = isFirst && symbol !== ROOT;
    }
  }
  await display.wait(show(false));
  return drawn;
}

async function picture() {
  const pixels = await display.wait(display.request(PICTURE, words(0), true));
  const bitmap = await createImageBitmap(new Blob([pixels], { type: "image/png" }));
  const canvas = by("canvas");
  if (canvas.width !== bitmap.width) canvas.width = canvas.height = bitmap.width;
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
}

// One drawing after the other; rates are of the last second or the last drawing, whatever is longer.
async function run() {
  let since = performance.now(), items = 0, frames = 0, pictured = 0;
  while (isRunning) {
    const before = { ...display.counts }, began = performance.now();
    items += await draw(by("drawing").value, by("mode").value);
    frames += 1;
    const now = performance.now();
    by("took").textContent = seconds((now - began) / 1000);
    by("bytes").textContent = round(display.counts.bytes - before.bytes);
    by("messages").textContent = round(display.counts.messages - before.messages);
    by("trips").textContent = round(display.counts.trips - before.trips);
    if (now - since > 1000) {
      by("items").textContent = round(items * 1000 / (now - since));
      by("frames").textContent = round(frames * 1000 / (now - since));
      [since, items, frames] = [now, 0, 0];
    }
    // Beside the benchmark, whose link this would fill.
    if (now - pictured > 250) { await fetchOwn(); pictured = performance.now(); }
  }
}

async function fetchOwn() {
  const reply = await fetch(`/clients/${display.client}${query}`).catch(() => null);
  if (!reply?.ok) return;
  const bitmap = await createImageBitmap(await reply.blob());
  const canvas = by("canvas");
  if (canvas.width !== bitmap.width) canvas.width = canvas.height = bitmap.width;
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
}

// One change by hand after the other: what was asked meanwhile is done at once.
let isShowing = false, isAskedAgain = false;
async function refresh() {
  if (isRunning || !display) return;
  isAskedAgain = true;
  if (isShowing) return;
  isShowing = true;
  while (isAskedAgain) {
    isAskedAgain = false;
    const began = performance.now();
    view();
    show(false, false);
    await picture().catch(() => null);
    by("shown").textContent = seconds((performance.now() - began) / 1000);
  }
  isShowing = false;
}

function setLink() {
  const delay = Number(by("delay").value), rate = RATES[by("rate").value];
  by("delay-text").textContent = `${delay} ms`;
  by("rate-text").textContent = rate === null ? "as it is"
    : rate < 1e6 ? `${rate / 1000} kb/s` : rate < 1e9 ? `${rate / 1e6} Mb/s` : `${rate / 1e9} Gb/s`;
  if (display?.socket.readyState === WebSocket.OPEN) display.link(delay, rate);
}

function setRunning(isWanted) {
  isRunning = isWanted;
  by("run").textContent = isWanted ? "Pause" : "Run";
  if (isWanted) run().catch((error) => setPaused(error)); else refresh();
}

// What was built in part is built again, so that there is something to pan.
async function setPaused(error) {
  if (isRunning) { say(error.message); return; }
  await draw(by("drawing").value, "structured").catch(() => null);
  refresh();
}

const move = (dx, dy) => {
  // What is there moves at once; what that uncovers comes with the picture.
  const canvas = by("canvas"), context = canvas.getContext("2d");
  context.globalCompositeOperation = "copy";
  context.drawImage(canvas, -dx, -dy);
  context.globalCompositeOperation = "source-over";
  port.x = Math.round(port.x + dx * 65536 / port.scale);
  port.y = Math.round(port.y + dy * 65536 / port.scale);
  refresh();
};
const zoom = (factor) => {
  if (isRunning) setRunning(false);
  const half = sizeNow() / 2, old = port.scale;
  port.scale = Math.min(Math.max(Math.round(port.scale * factor), 256), 1 << 24);
  port.x = Math.round(port.x + half * 65536 / old - half * 65536 / port.scale);
  port.y = Math.round(port.y + half * 65536 / old - half * 65536 / port.scale);
  refresh();
};

function addAt(x, y) {
  const [ux, uy] = [port.x + x * 65536 / port.scale, port.y + y * 65536 / port.scale].map(Math.round);
  display.request(ADD, both(words(ROOT, 1), rectangle(6, 0, ux - 6, uy - 6, 12, 12)));
  refresh();
}

let grabbed = null;
const onCanvas = (event) => {
  const box = by("canvas").getBoundingClientRect(), scale = by("canvas").width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
};
by("canvas").onpointerdown = (event) => {
  if (isRunning) setRunning(false);
  grabbed = { at: onCanvas(event), isMoved: false };
  by("canvas").setPointerCapture(event.pointerId);
};
by("canvas").onpointermove = (event) => {
  if (!grabbed) return;
  const [x, y] = onCanvas(event), [dx, dy] = [grabbed.at[0] - x, grabbed.at[1] - y].map((d) => 8 * Math.trunc(d / 8));
  // By eights: a display only draws what such a move uncovers.
  if (dx === 0 && dy === 0) return;
  grabbed = { at: [grabbed.at[0] - dx, grabbed.at[1] - dy], isMoved: true };
  move(dx, dy);
};
by("canvas").onpointerup = (event) => {
  if (grabbed && !grabbed.isMoved) addAt(...onCanvas(event));
  grabbed = null;
};
by("canvas").onkeydown = (event) => {
  const step = { ArrowLeft: [-40, 0], ArrowRight: [40, 0], ArrowUp: [0, -40], ArrowDown: [0, 40] }[event.key];
  if (!step && !"+-".includes(event.key)) return;
  event.preventDefault();
  if (isRunning) setRunning(false);
  if (step) move(...step); else zoom(event.key === "+" ? 2 : 0.5);
};

by("closer").onclick = () => zoom(2);
by("farther").onclick = () => zoom(0.5);
by("run").onclick = () => setRunning(!isRunning);
by("delay").oninput = by("rate").oninput = setLink;
by("drawing").onchange = () => { port = { x: 0, y: 0, scale: 65536 }; if (!isRunning) setPaused(new Error()); };

async function listClients() {
  const reply = await fetch(`/clients${query}`).catch(() => null);
  if (reply?.ok) {
    const clients = await reply.json();
    by("nobody").hidden = clients.length > 1;
    by("clients").replaceChildren(...clients.filter(({ id }) => id !== display?.client).map((client) => {
      const entry = document.createElement("li"), text = document.createElement("p"), name = document.createElement("strong");
      name.textContent = `${client.id}: ${client.name}`;
      text.append(name, ` ${round(client.frames)} frames, ${round(client.items)} items, ${round(client.messages)} messages`);
      if (client.has_picture) {
        const image = document.createElement("img");
        image.alt = `What client ${client.id} has drawn last`;
        image.src = `/clients/${client.id}${query}${query ? "&" : "?"}frame=${client.frames}`;
        entry.append(image);
      }
      entry.append(text);
      return entry;
    }));
  }
  setTimeout(listClients, 500);
}

async function begin() {
  display = new Display(() => {
    say("the display is gone; trying again …");
    isRunning = false;
    setTimeout(() => begin().catch(() => {}), 1000);
  });
  await display.opened;
  setLink();
  await display.wait(display.request(HELLO, new Uint8Array([1, 0]), true));
  say(`connected as client ${display.client}`);
  setRunning(true);
}

listClients();
begin().catch((error) => say(error.message));
