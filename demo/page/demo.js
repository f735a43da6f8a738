'use strict';
// Plays the video by dash.js, shows the protocol of its segments, and requests the metrics of both litequic. Puts
// texts alone into the page.
const EVERY = 1000;
const at = id => document.getElementById(id);
const video = at('video');
const put = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };
const digits = (value, most = 1) => value.toLocaleString('en', { maximumFractionDigits: most });
const megabits = kilobits => digits(kilobits / 1000) + ' Mbit/s';
const PROTOCOLS = { h3: 'HTTP/3', h2: 'HTTP/2', 'http/1.1': 'HTTP/1.1' };

function say(text, kind = '') {
  put('state', text);
  at('state').className = kind;
}

// The ways: the same page at three ports. The place in the video goes along.
async function ways() {
  const ports = await (await fetch('ways.json')).json();
  for (const link of document.querySelectorAll('[data-way]')) {
    const port = String(ports[link.dataset.way]);
    const url = new URL(location.href);
    url.port = port;
    url.hash = '';
    link.href = url.href;
    if (port === (location.port || '443')) link.setAttribute('aria-current', 'page');
    link.addEventListener('click', () => {
      url.hash = 't=' + video.currentTime.toFixed(1);
      link.href = url.href;
    });
  }
}

// The browser's own report of each segment (Resource Timing, nextHopProtocol).
const segments = new Map();
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) {
    // Viewers load from the other servers, too.
    if (!entry.name.startsWith(location.origin + '/') || !entry.name.endsWith('.m4s') || entry.responseStatus >= 400) continue;
    const name = PROTOCOLS[entry.nextHopProtocol] || entry.nextHopProtocol || 'not told';
    segments.set(name, (segments.get(name) || 0) + 1);
  }
  put('protocol', [...segments].map(([name, count]) => `${name} × ${count}`).join(', '));
}).observe({ type: 'resource', buffered: true });

// Rebuffering: the video waits though it has played since it began or was sought in, and is not over.
const stalls = { count: 0, seconds: 0, since: null };
let begun = false;
video.addEventListener('waiting', () => {
  const over = video.duration - video.currentTime < 0.5;
  if (!begun || over || stalls.since !== null) return;
  stalls.count++;
  stalls.since = performance.now();
});
video.addEventListener('playing', () => {
  begun = true;
  if (stalls.since !== null) stalls.seconds += (performance.now() - stalls.since) / 1000;
  stalls.since = null;
  say('It plays.', 'good');
});
video.addEventListener('seeking', () => {
  begun = false;
  stalls.since = null;
});
video.addEventListener('pause', () => say(video.ended ? 'It begins again.' : 'It is paused.'));

let switches = 0;
const player = dashjs.MediaPlayer().create();

function play() {
  const events = dashjs.MediaPlayer.events;
  player.updateSettings({ streaming: {
    // What is buffered already is shown as it is, so that a change of quality never empties the buffer.
    buffer: { fastSwitchEnabled: false, bufferTimeDefault: 20, bufferTimeAtTopQuality: 30 },
    // From the bottom up, for all to see.
    abr: { initialBitrate: { video: 1 } },
  } });
  player.on(events.STREAM_INITIALIZED, () => {
    const select = at('quality');
    if (select.options.length > 1) return;
    const all = player.getRepresentationsByType('video').sort((a, b) => a.height - b.height);
    for (const one of all) select.add(new Option(`${one.height} lines, ${megabits(one.bitrateInKbit)}`, one.id));
  });
  player.on(events.QUALITY_CHANGE_RENDERED, event => {
    if (event.mediaType !== 'video') return;
    if (event.oldRepresentation) switches++;
    put('switches', String(switches));
    const shown = event.newRepresentation;
    put('rendition', `${shown.width} × ${shown.height}`);
    put('bitrate', megabits(shown.bitrateInKbit));
    kilobits = shown.bitrateInKbit;
  });
  player.on(events.ERROR, event => say(`The player says: ${event.error.message || event.error.code}`, 'bad'));
  player.on(events.PLAYBACK_NOT_ALLOWED, () => say('The browser wants you to press play.'));
  // From the beginning again, once the player has done what it does at the end.
  player.on(events.PLAYBACK_ENDED, () => setTimeout(() => {
    player.seek(0);
    player.play();
  }));
  const [, place] = location.hash.match(/^#t=([\d.]+)$/) || [];
  player.initialize(video, 'media/video.mpd', true, place ? Number(place) : NaN);
}

at('controls').addEventListener('submit', event => event.preventDefault());
at('quality').addEventListener('change', event => {
  const auto = event.target.value === 'auto';
  player.updateSettings({ streaming: { abr: { autoSwitchBitrate: { video: auto } } } });
  if (!auto) player.setRepresentationForTypeById('video', event.target.value);
});

let loading = false;
at('load').addEventListener('click', async () => {
  // Not `disabled`, which would take the focus away.
  if (loading) return;
  loading = true;
  at('load').setAttribute('aria-disabled', 'true');
  const best = player.getRepresentationsByType('video').reduce((a, b) => (a.bitrateInKbit > b.bitrateInKbit ? a : b));
  const urls = Array.from({ length: Math.floor(video.duration / 2) },
    (_, n) => `media/segment-${best.id}-${String(n + 1).padStart(5, '0')}.m4s`);
  const left = Array(5).fill(urls).flat();
  const started = performance.now();
  let bytes = 0;
  const take = async () => {
    while (left.length) {
      const body = await (await fetch(left.pop(), { cache: 'no-store' })).arrayBuffer();
      bytes += body.byteLength;
    }
  };
  put('loaded', 'Loading.');
  try {
    await Promise.all(Array.from({ length: 6 }, take));
    const seconds = (performance.now() - started) / 1000;
    put('loaded', `${digits(bytes / 1e6, 0)} MB came in ${digits(seconds)} s.`);
  } catch (error) {
    put('loaded', `It broke off: ${error.message}.`);
  }
  loading = false;
  at('load').removeAttribute('aria-disabled');
});

// A sample a line, as Prometheus reads them.
function samples(text) {
  const found = {};
  for (const line of text.split('\n')) {
    const cut = line.lastIndexOf(' ');
    if (line[0] !== '#' && cut > 0) found[line.slice(0, cut)] = Number(line.slice(cut + 1));
  }
  return found;
}

// `least`: of less nothing follows.
const ratio = (above, below, most, least = 1) => (below >= least ? digits(above / below, most) : '–');
const sum = (now, name) => now[name] || 0;
const ROWS = [
  ['CPU now, % of a core', (now, before) => {
    const seconds = now.at - before.at;
    return seconds ? digits(100 * (sum(now, 'process_cpu_seconds_total') - sum(before, 'process_cpu_seconds_total')) / seconds) : '–';
  }],
  ['CPU time, s', now => digits(sum(now, 'process_cpu_seconds_total'), 2)],
  ['Bodies sent, MB', now => digits(sum(now, 'litequic_response_body_bytes_total') / 1e6)],
  ['CPU time a gigabyte sent, s', now => ratio(sum(now, 'process_cpu_seconds_total') * 1e9, sum(now, 'litequic_response_body_bytes_total'), 2, 1e7)],
  ['ACK frames received', now => digits(sum(now, 'litequic_ack_frames_received_total'), 0)],
  ['of them merged', now => digits(sum(now, 'litequic_ack_frames_merged_total'), 0)],
  ['Packets sent for each ACK frame', now => ratio(sum(now, 'litequic_packets_sent_total'), sum(now, 'litequic_ack_frames_received_total'))],
  ['Datagrams a send (GSO)', now => ratio(sum(now, 'litequic_datagrams_sent_total'), sum(now, 'litequic_send_messages_total'))],
  ['Packets lost, % of those sent', now => ratio(100 * sum(now, 'litequic_packets_lost_total'), sum(now, 'litequic_packets_sent_total'), 2, 1000)],
];

const last = {};
async function metrics(way) {
  try {
    const answer = await fetch('metrics/' + way, { cache: 'no-store', signal: AbortSignal.timeout(4000) });
    if (!answer.ok) return null;
    const now = { ...samples(await answer.text()), at: performance.now() / 1000 };
    const before = last[way] || now;
    last[way] = now;
    return { now, before };
  } catch {
    return null;
  }
}

async function costs() {
  const both = await Promise.all([metrics('litequic'), metrics('plain')]);
  const body = at('costs').tBodies[0];
  if (!body.rows.length) {
    for (const [name] of ROWS) {
      const row = body.insertRow();
      const head = document.createElement('th');
      head.scope = 'row';
      head.textContent = name;
      row.append(head);
      for (const _ of both) row.insertCell().className = 'n';
    }
  }
  ROWS.forEach(([, of], row) => both.forEach((one, column) => {
    body.rows[row].cells[column + 1].textContent = one ? of(one.now, one.before) : 'no answer';
  }));
}

let kilobits = 0;
const past = [];
function look() {
  const buffer = player.getBufferLength('video') || 0;
  put('buffer', digits(buffer) + ' s');
  const waits = stalls.since === null ? 0 : (performance.now() - stalls.since) / 1000;
  put('stalls', stalls.count ? `${stalls.count} ×, ${digits(stalls.seconds + waits)} s` : 'none');
  const throughput = player.getAverageThroughput('video');
  put('throughput', throughput ? megabits(throughput) : '–');
  const frames = video.getVideoPlaybackQuality();
  put('dropped', `${digits(frames.droppedVideoFrames, 0)} of ${digits(frames.totalVideoFrames, 0)}`);
  past.push([buffer, kilobits]);
  if (past.length > 120) past.shift();
  const line = (column, most) => past
    .map((values, n) => `${n * 300 / 119},${58 - 56 * Math.min(values[column] / most, 1)}`).join(' ');
  at('plot-buffer').setAttribute('points', line(0, 40));
  at('plot-bitrate').setAttribute('points', line(1, 6000));
}

async function live() {
  for (;;) {
    look();
    await costs();
    await new Promise(next => setTimeout(next, EVERY));
  }
}

ways().catch(error => say(`ways.json: ${error.message}`, 'bad'));
play();
live();
