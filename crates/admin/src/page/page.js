'use strict';
// Asks /status every two seconds and shows it, with what two answers differ by. Puts texts and charts' paths alone into the page.
const EVERY = 2000;
const PATIENCE = 5000;
// Seconds that charts show: those that the process keeps.
const TREND = 600;
// A chart's height, as its viewBox has it.
const HEIGHT = 32;
// Routes that are shown.
const MOST_ROUTES = 100;
// Connections that are shown, and all by which the list is short.
const BUSIEST = '/clients?limit=10';
// Limits that any large transfer reaches: the sender waits, and nothing is lost.
const FLOW_CONTROL = ['stream_receive_buffer', 'connection_receive_buffer', 'worker_receive_buffer', 'send_buffer', 'max_streams'];
// Routes and hosts in maintenance that are named above all else.
const MOST_NAMED = 8;
// Whether the past of the process is in the charts.
let hasPast = false;
const at = id => document.getElementById(id);
let before = null;
let trend = [];
let token = '';

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// A row's cells: a text, [text, class], or [text, class, badge]. The first names the row. Unchanged cells are left, for a user who
// is reading them.
function rows(id, all) {
  const body = at(id).tBodies[0];
  const text = JSON.stringify(all);
  if (body.dataset.shown === text) return;
  body.dataset.shown = text;
  // Of its column: where a screen is narrow, cells stand below each other.
  const labels = [...at(id).tHead.rows[0].cells].map(cell => cell.textContent);
  body.replaceChildren(...all.map(cells => {
    const row = document.createElement('tr');
    cells.forEach((cell, n) => {
      const [text, kind, badge] = Array.isArray(cell) ? cell : [cell, ''];
      const made = element(n ? 'td' : 'th', text, kind);
      if (badge) made.append(' ', element('span', badge, 'badge'));
      if (n) made.dataset.label = labels[n];
      else made.scope = 'row';
      row.append(made);
    });
    return row;
  }));
}

function say(text, kind) {
  if (at('state').textContent === text) return;
  at('state').textContent = text;
  at('state').className = kind;
}

// The first thing that is read: ready, or what is wrong in one line each.
function verdict(now) {
  const problems = now.problems || [];
  const ready = now.phase === 'ready';
  say(ready && problems.length ? 'Ready, with ' + (problems.length > 1 ? problems.length + ' problems:' : 'a problem:')
    : 'litequic is ' + now.phase + '.', ready && !problems.length ? 'good' : 'bad');
  const list = at('problems');
  list.hidden = !problems.length;
  if (list.dataset.shown === problems.join('\n')) return;
  list.dataset.shown = problems.join('\n');
  list.replaceChildren(...problems.map(problem => element('li', problem)));
}

const digits = (value, most = 1) => value.toLocaleString('en', { maximumFractionDigits: most });
const whole = value => digits(value, 0);

function bytes(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let n = 0;
  for (; value >= 1000 && n < units.length - 1; n++) value /= 1000;
  return digits(value, n ? 1 : 0) + ' ' + units[n];
}

function ratio(above, below, percent) {
  if (!below) return '–';
  return percent ? digits(100 * above / below) + ' %' : digits(above / below);
}

// The two largest units.
function duration(seconds) {
  const [d, h, m, s] = [seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60].map(Math.floor);
  return d ? d + ' d ' + h + ' h' : h ? h + ' h ' + m + ' min' : m ? m + ' min ' + s + ' s' : s + ' s';
}

const time = seconds => new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ') + ' UTC';

// One chart, from 0 to the most: points are [seconds ago, value].
function chart(id, points, write) {
  const figure = at(id);
  const most = Math.max(...points.map(point => point[1]));
  const [last] = points.slice(-1);
  figure.querySelector('output').textContent = last ? write(last[1]) + ', at most ' + write(most) : 'not known yet';
  const place = ([ago, value]) => (TREND - ago).toFixed(2) + ' ' + (HEIGHT - (most > 0 ? value / most : 0) * (HEIGHT - 1)).toFixed(2);
  const line = points.map(place).join('L');
  figure.querySelector('.line').setAttribute('d', points.length > 1 ? 'M' + line : '');
  const [first] = points;
  figure.querySelector('.area').setAttribute('d', points.length > 1
    ? 'M' + (TREND - first[0]).toFixed(2) + ' ' + HEIGHT + 'L' + line + 'L' + (TREND - last[0]).toFixed(2) + ' ' + HEIGHT + 'Z' : '');
}

function charts(now) {
  trend = trend.filter(point => now - point.time <= TREND && point.time <= now);
  const of = name => trend.filter(point => Number.isFinite(point[name])).map(point => [now - point.time, point[name]]);
  chart('chart-requests', of('requests'), value => digits(value));
  chart('chart-bytes', of('bytes'), bytes);
  chart('chart-errors', of('errors'), value => digits(value));
  chart('chart-cpu', of('cpu'), value => digits(value));
}

// What the process has kept of the time before the first answer.
function past(points) {
  const [first] = trend;
  const kept = points.slice(1).map((point, n) => {
    const was = points[n];
    const rate = name => (point[name] - was[name]) / (point.time - was.time);
    return { time: point.time, requests: rate('requests'), bytes: rate('bytes'), errors: rate('errors'), cpu: rate('cpu') * 100 };
  });
  trend = [...kept.filter(point => !first || point.time < first.time), ...trend];
}

// By route: all responses, those of a class, and bytes to and from clients.
function byRoute(metrics) {
  const routes = new Map();
  for (const [key, count] of Object.entries(metrics)) {
    const found = /^route_responses\{route="(.*)",protocol="[^"]*",class="([^"]*)"\}$/.exec(key);
    if (!found) continue;
    const [, route, kind] = found;
    const bodies = of => metrics['route_' + of + '_body_bytes{route="' + route + '"}'] || 0;
    const counts = routes.get(route) || { all: 0, sent: bodies('response'), received: bodies('request') };
    counts.all += count;
    counts[kind] = (counts[kind] || 0) + count;
    routes.set(route, counts);
  }
  return routes;
}

// What the operator has switched to maintenance: in words, and the routes, as metrics name them.
function maintenance(switched) {
  const named = switched.slice(0, MOST_NAMED).map(({ target, retry_after: after, routes }) =>
    (target === null ? 'all routes' : target) + ' (Retry-After ' + whole(after) + ' s' + (routes.length ? '' : '; no such route now') + ')');
  if (switched.length > MOST_NAMED) named.push('and ' + (switched.length - MOST_NAMED) + ' more');
  return {
    told: named.length ? 'In maintenance, answered 503: ' + named.join(', ') + '.' : '',
    routes: new Set(switched.flatMap(one => one.routes).map(name => name.replace(/["\\]/g, '_'))),
  };
}

// Whether HTTP/3 is served, and what switched it.
const http3 = ({ on, configured }) => 'HTTP/3 ' + (on ? 'on' : 'off')
  + (on !== configured ? ' by litequic ctl http3' : on ? '' : ' by listen.http3');

// Where spans go, and whether they are accepted.
function traces({ endpoint, accepted_at: at, problem }) {
  const last = at === null ? 'none accepted yet' : 'accepted ' + (problem ? 'last ' : '') + time(at);
  return 'Traces to ' + endpoint + ': ' + (problem ? 'failing, ' : '') + last + '.' + (problem ? ' The last problem: ' + problem + '.' : '');
}

function show(now) {
  const metric = (status, name) => status.metrics[name] || 0;
  const total = name => metric(now, name);
  // Another process has begun anew.
  const same = before && before.generation === now.generation && before.uptime <= now.uptime
    && metric(before, 'connections') <= total('connections');
  if (!same) trend = [];
  const seconds = same ? now.time - before.time : 0;
  const change = name => same ? total(name) - metric(before, name) : 0;
  const rate = name => seconds > 0 ? change(name) / seconds : 0;
  const labelled = name => Object.keys(now.metrics).filter(key => key.startsWith(name + '{'))
    .map(key => [key.slice(key.indexOf('"') + 1, key.lastIndexOf('"')), key]);

  at('version').textContent = now.version;
  const { cpu_seconds: cpu, resident_bytes: resident, open_files: files } = now.process || {};
  const { id, user } = now.process || {};
  at('uptime').textContent = [
    id ? 'Process ' + id + (user ? ' of ' + user : '') + ', up ' + duration(now.uptime || 0) : 'Up ' + duration(now.uptime || 0),
    Number.isFinite(cpu) ? digits(cpu) + ' s of CPU time' : '',
    Number.isFinite(resident) ? bytes(resident) + ' in RAM' : '',
    Number.isFinite(files) ? whole(files) + ' open files' : '',
    now.http3 ? http3(now.http3) : '',
    now.denied_networks ? whole(now.denied_networks) + ' denied networks' : '',
  ].filter(Boolean).join(', ') + '.';
  const exported = now.traces ? traces(now.traces) : '';
  if (at('traces').textContent !== exported) at('traces').textContent = exported;
  at('traces').className = now.traces && now.traces.problem ? 'bad' : '';
  at('traces').hidden = !exported;
  const requests = labelled('requests');
  const failing = rate('responses{class="5xx"}');
  const asked = requests.reduce((sum, [, key]) => sum + rate(key), 0);
  if (seconds > 0) {
    const spent = Number.isFinite(cpu) && before.process ? (cpu - before.process.cpu_seconds) / seconds * 100 : NaN;
    trend.push({ time: now.time, requests: asked, bytes: rate('response_body_bytes'), errors: failing, cpu: spent });
  }
  charts(now.time);
  const tiles = [
    ['Requests per second', digits(asked)],
    ['5xx per second', digits(failing), failing ? 'bad' : ''],
    ['Requests open', whole(total('requests_open'))],
    ['QUIC connections open', whole(total('connections_open'))],
    ['TCP connections open', whole(total('tcp_connections_open'))],
    ['QUIC handshakes open', whole(total('handshakes_open'))],
    ['To clients', bytes(rate('response_body_bytes')) + '/s'],
    ['From clients', bytes(rate('request_body_bytes')) + '/s'],
    ['To clients in all', bytes(total('response_body_bytes'))],
    ['Origin connections', whole(total('origin_connections_open'))],
  ];
  const { step, used, limit } = now.memory || {};
  if (limit) tiles.push(['Memory of ' + bytes(limit) + (step === 'normal' ? '' : ': ' + step), bytes(used), step === 'normal' ? '' : 'bad']);
  at('tiles').replaceChildren(...tiles.map(([name, value, kind]) => {
    const tile = document.createElement('div');
    tile.append(element('dt', name), element('dd', value, kind));
    return tile;
  }));

  const { told: closed, routes: inMaintenance } = maintenance(now.maintenance || []);
  if (at('maintenance').textContent !== closed) at('maintenance').textContent = closed;
  at('maintenance').hidden = !closed;

  const [routes, routesBefore] = [byRoute(now.metrics), same ? byRoute(before.metrics) : new Map()];
  const each = (route, counts, name) => {
    const was = routesBefore.get(route);
    return was && seconds > 0 ? (counts[name] - was[name]) / seconds : 0;
  };
  // Those in maintenance, then those with most bytes now, then in all.
  const load = ([route, counts]) => [inMaintenance.has(route) ? 1 : 0, each(route, counts, 'sent'), counts.sent, counts.all];
  const byLoad = (one, other) => {
    const [first, second] = [load(one), load(other)];
    const differs = first.findIndex((value, n) => value !== second[n]);
    return differs < 0 ? 0 : second[differs] - first[differs];
  };
  const shown = [...routes].sort(byLoad).slice(0, MOST_ROUTES).map(([route, counts]) => {
    const was = routesBefore.get(route);
    const failed = counts['5xx'] || 0;
    return [
      inMaintenance.has(route) ? [route, '', 'in maintenance'] : route,
      [whole(counts.all), 'n'],
      [digits(each(route, counts, 'all')), 'n'],
      [whole(counts['4xx'] || 0), 'n'],
      [whole(failed), was && failed > (was['5xx'] || 0) ? 'n bad' : 'n'],
      [bytes(counts.sent), 'n'],
      [bytes(each(route, counts, 'sent')), 'n'],
      [bytes(counts.received), 'n'],
    ];
  });
  if (routes.size > MOST_ROUTES) shown.push(['and ' + (routes.size - MOST_ROUTES) + ' more: /metrics has all', '', '', '', '', '', '', '']);
  rows('routes', shown);

  rows('mechanisms', (now.mechanisms || []).map(({ name, state, saved, count }) => {
    const was = same ? (before.mechanisms || []).find(row => row.name === name) : null;
    return [
      name,
      state,
      [whole(count) + ' ' + saved, 'n'],
      [digits(was && seconds > 0 ? (count - was.count) / seconds : 0), 'n'],
    ];
  }));
  const savings = [
    ['Datagrams received in a batch', 'datagrams_received', 'receive_batches', false],
    ['Datagrams sent in a message (GSO)', 'datagrams_sent', 'send_messages', false],
    ['Acknowledgements merged', 'ack_frames_merged', 'ack_frames_received', true],
    ['Packets sent for each acknowledgement', 'packets_sent', 'ack_frames_received', false],
  ];
  rows('savings', savings.map(([name, above, below, percent]) => [
    name,
    [ratio(change(above), change(below), percent), 'n'],
    [ratio(total(above), total(below), percent), 'n'],
  ]));
  const counted = ([name, key]) => [name, [whole(total(key)), 'n'], [digits(rate(key)), 'n']];
  const connections = protocol => total(protocol === 'h3' ? 'connections' : 'tcp_connections{protocol="' + protocol + '"}');
  rows('protocols', requests.map(([name, key]) => [name, [whole(connections(name)), 'n'], ...counted([name, key]).slice(1)]));
  rows('classes', labelled('responses').map(counted));
  const isFlowControl = ([name]) => FLOW_CONTROL.includes(name);
  const bitten = ['limit_reached', 'timeouts'].flatMap(labelled).filter(([, key]) => total(key))
    .sort((one, other) => isFlowControl(one) - isFlowControl(other));
  rows('limits', bitten.length ? bitten.map(([name, key]) => [
    (key.startsWith('timeouts') ? 'timeout: ' : isFlowControl([name]) ? 'flow control: ' : 'limit: ') + name, [digits(rate(key)), 'n'], [whole(total(key)), 'n'],
  ]) : [['none', ['0', 'n'], ['0', 'n']]]);
  rows('workers', now.workers.map(({ worker, seconds_since_turn: ago, idle }) => [
    String(worker), ago > 5 ? ['hangs', 'bad'] : ['responds', 'good'], [idle ? 'idle' : digits(ago), 'n'],
  ]));
  rows('origins', (now.origins || []).map(server => {
    const { name, address, checked, problem, ejected_by: ejected } = server;
    const state = problem || (ejected ? 'ejected by ' + ejected + ' of ' + now.workers.length + ' workers'
      : checked ? 'healthy' : 'accepts connections');
    const counted = [server.connections, server.requests, server.failures].map(count => [whole(count), 'n']);
    return [name, address, [state, problem || ejected ? 'bad' : 'good'], ...counted];
  }));
  rows('certificates', (now.certificates || []).map(({ names, algorithm, expires, renew_by: due, warnings }) => {
    const days = Math.floor((expires - now.time) / 86400);
    const expiry = new Date(expires * 1000).toISOString().slice(0, 10);
    const overdue = now.time >= due;
    const state = warnings.length ? [warnings.join('; '), 'bad'] : overdue ? ['renewal is overdue', 'bad'] : ['valid', 'good'];
    return [names.join(', ') + ' (' + algorithm + ')', state, expiry, [whole(days), overdue ? 'n bad' : 'n']];
  }));
  at('acme').hidden = !now.acme;
  rows('acme', (now.acme || []).map(({ host, state, next, directory, problem, record }) => [
    host, [state, state === 'valid' ? 'good' : 'bad'], time(next), directory,
    [[problem, record && 'TXT record: ' + record].filter(Boolean).join('; ') || '–', problem ? 'bad' : ''],
  ]));
  const { file, version, read, reloads, reloaded_at, refused, refused_since: since, renewed_at: renewed } = now.configuration;
  const last = (count, at) => count + (count ? ', the last ' + time(at) : '');
  at('read').textContent = (file ? file + ': version ' : 'Version ') + version + ', read ' + time(read) + '. Reloads: ' + last(reloads, reloaded_at) + '.';
  at('refused').textContent = (since ? 'The configuration file has been rejected since ' + time(since) + ': the log says why. ' : '')
    + 'Rejected reloads: ' + whole(refused) + '. Certificates and error pages renewed: ' + (renewed ? time(renewed) : 'not yet') + '.';
  at('refused').className = since ? 'bad' : '';
  const { result, lines, at: reloadedAt, by } = now.last_reload || {};
  const told = result ? ['The last reload, ' + time(reloadedAt) + ' by ' + by + ', was ' + (result === 'ok' ? 'applied.' : 'rejected.'), ...lines] : [];
  at('reload').hidden = !told.length;
  if (at('reload').textContent !== told.join('')) at('reload').replaceChildren(...told.map(line => element('li', line)));
  at('answered').hidden = false;
  verdict(now);
  before = now;
}

// The busiest connections. A value that is not known, or that the protocol does not have, is a dash.
function clients(list) {
  const known = (value, write) => Number.isFinite(value) ? [write(value), 'n'] : ['–', 'n'];
  rows('clients', (list.clients || []).map(one => [
    one.client,
    one.protocol,
    known(one.age, duration),
    known(one.open, whole),
    known(one.sent_rate, value => bytes(value) + '/s'),
    known(one.sent, bytes),
    known(one.received, bytes),
    known(one.rtt, value => digits(value * 1000) + ' ms'),
    known(one.loss, value => digits(value * 100, 2) + ' %'),
  ]));
}

async function get(path) {
  const headers = token ? { Authorization: 'Bearer ' + token } : {};
  const answer = await fetch(path, { headers, cache: 'no-store', signal: AbortSignal.timeout(PATIENCE) });
  if (answer.status === 401) {
    at('ask').hidden = false;
    throw new Error('This address needs its token.');
  }
  if (!answer.ok) throw new Error('litequic answers with ' + answer.status + '.');
  at('ask').hidden = true;
  return answer.json();
}

async function turn() {
  try {
    const read = before && before.configuration.read;
    const status = await get('/status');
    if (read !== status.configuration.read || !at('keys').tBodies[0].rows.length) {
      rows('keys', Object.entries(await get('/config')));
    }
    show(status);
    if (!hasPast) {
      hasPast = true;
      past((await get('/history').catch(() => ({}))).points || []);
      charts(status.time);
    }
    // A worker that hangs is told by the status.
    clients(await get(BUSIEST).catch(() => ({})));
  } catch (error) {
    say(error instanceof TypeError || error.name === 'TimeoutError' ? 'litequic does not answer.' : error.message, 'bad');
  }
  setTimeout(turn, EVERY);
}

at('ask').addEventListener('submit', event => {
  event.preventDefault();
  token = at('token').value;
});
turn();
