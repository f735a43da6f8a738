'use strict';
// Emulated viewers: each loads the video's segments from one of the servers, in the quality that its buffer and its throughput allow,
// and plays them in wall time without showing them. All viewers of a server share the browser's one connection to it.
const MOST = 60;
const SEGMENT = 2; // seconds
const FULL = 18; // seconds buffered
const LOW = 0.3; // seconds buffered: below it stands still
const HALF_LIFE = 3; // seconds of loading
const SAFE = 0.9; // of the throughput
const SHORT = 0.7; // of the throughput, by what is buffered

class Viewer {
  constructor(base, ladder, segments) {
    Object.assign(this, { base, ladder, segments, quality: 0, next: 0, rate: 0, weight: 0 });
    Object.assign(this, { buffer: 0, plays: false, stands: 0, played: 0, kilobits: 0, loaded: 0, error: '' });
    this.seen = performance.now();
  }

  // Playback until now.
  look() {
    const now = performance.now(), passed = (now - this.seen) / 1000;
    this.seen = now;
    if (!this.loaded) return;
    const left = this.plays ? Math.min(passed, Math.max(this.buffer - LOW, 0)) : 0;
    this.buffer -= left;
    this.played += left;
    this.stands += passed - left;
    this.plays = this.buffer > LOW;
  }

  // The highest quality that the throughput carries, and that comes before the buffer is empty.
  decide() {
    if (!this.weight) return 0;
    const rate = this.rate / this.weight;
    const most = Math.min(rate * SAFE, this.loaded > 2 ? rate * SHORT * this.buffer / SEGMENT : Infinity);
    return Math.max(0, this.ladder.findLastIndex(one => one.kilobits <= most));
  }

  async load(signal) {
    const { id, kilobits } = this.ladder[this.quality = this.decide()];
    const number = String(this.next % this.segments + 1).padStart(5, '0');
    const answer = await fetch(`${this.base}media/segment-${id}-${number}.m4s`, { cache: 'no-store', signal });
    if (!answer.ok) throw new Error('status ' + answer.status);
    const began = performance.now();
    const bytes = (await answer.arrayBuffer()).byteLength;
    const seconds = Math.max((performance.now() - began) / 1000, 0.001);
    const old = 0.5 ** (1.5 * seconds / HALF_LIFE);
    this.rate = (1 - old) * bytes * 0.008 / seconds + old * this.rate;
    this.weight = 1 - old + old * this.weight;
    this.look();
    this.buffer += SEGMENT;
    this.kilobits += kilobits;
    this.next++;
    this.loaded++;
    this.plays = this.buffer > LOW;
    this.error = '';
  }

  async watch(signal) {
    while (!signal.aborted) {
      this.look();
      if (this.buffer + SEGMENT < FULL) {
        await this.load(signal).catch(error => { this.error = error.message; });
        if (!this.error) continue;
      }
      await new Promise(next => setTimeout(next, 500));
    }
  }
}

const crowds = new Map();
let stop = null;

// Each server's row, made once.
async function rows() {
  const ports = await (await fetch('ways.json')).json();
  for (const link of document.querySelectorAll('[data-way]')) {
    const way = link.dataset.way;
    const row = at('crowds').tBodies[0].insertRow();
    const head = document.createElement('th');
    head.scope = 'row';
    head.textContent = link.querySelector('strong').textContent;
    row.append(head);
    const bars = document.createElement('div');
    bars.className = 'bars';
    bars.setAttribute('role', 'img');
    row.insertCell().append(bars);
    for (let cell = 0; cell < 2; cell++) row.insertCell().className = 'n';
    const url = new URL('.', location.href);
    url.port = String(ports[way]);
    url.hash = '';
    crowds.set(way, { row, bars, base: url.href, viewers: [] });
  }
}

function show() {
  for (const { row, bars, viewers } of crowds.values()) {
    viewers.forEach(viewer => viewer.look());
    while (bars.children.length > viewers.length) bars.lastChild.remove();
    while (bars.children.length < viewers.length) bars.append(document.createElement('span'));
    viewers.forEach((viewer, nth) => {
      const bar = bars.children[nth];
      bar.style.height = `${100 * (viewer.quality + 1) / viewer.ladder.length}%`;
      bar.className = viewer.loaded && !viewer.plays ? 'stands' : '';
    });
    const sum = of => viewers.reduce((sum, viewer) => sum + of(viewer), 0);
    const loaded = sum(viewer => viewer.loaded), time = sum(viewer => viewer.played + viewer.stands);
    const stand = sum(viewer => viewer.loaded && !viewer.plays ? 1 : 0);
    const failed = viewers.find(viewer => viewer.error);
    bars.setAttribute('aria-label', `${viewers.length} viewers, ${stand} of them stand still`);
    row.cells[2].textContent = failed ? failed.error : loaded ? megabits(sum(viewer => viewer.kilobits) / loaded) : '–';
    row.cells[3].textContent = time ? digits(100 * sum(viewer => viewer.stands) / time) + ' %' : '–';
  }
}

at('watch').addEventListener('click', () => {
  if (stop) {
    stop.abort();
    stop = null;
    put('watch', 'Start');
    return;
  }
  const representations = player.getRepresentationsByType('video');
  const ladder = representations.map(one => ({ id: one.id, kilobits: one.bitrateInKbit }));
  ladder.sort((one, other) => one.kilobits - other.kilobits);
  if (!ladder.length) return;
  stop = new AbortController();
  put('watch', 'Stop');
  const count = Math.min(Math.max(Math.floor(Number(at('count').value)) || 1, 1), MOST);
  at('count').value = String(count);
  for (const crowd of crowds.values()) {
    const segments = Math.floor(video.duration / SEGMENT);
    crowd.viewers = Array.from({ length: count }, () => new Viewer(crowd.base, ladder, segments));
    crowd.viewers.forEach(viewer => viewer.watch(stop.signal));
  }
});
at('crowd-controls').addEventListener('submit', event => event.preventDefault());

rows().then(() => setInterval(() => stop && show(), 500), error => say(`ways.json: ${error.message}`, 'bad'));
