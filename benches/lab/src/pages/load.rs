//! One load of a page: what the page reports of itself.

use serde::{Deserialize, Serialize};

/// Notes the largest contentful paint, and keeps more than 250 resources.
pub(super) const OBSERVE: &str = "globalThis.largest = 0;
    performance.setResourceTimingBufferSize(2000);
    new PerformanceObserver(list => { for (const entry of list.getEntries()) globalThis.largest = entry.startTime; })
        .observe({ type: 'largest-contentful-paint', buffered: true });";

/// Waits until the page has loaded and so many objects have come (one may be requested behind the load event), or too
/// long for them, and a bit longer for what is painted last.
pub(super) const MEASURE: &str = "(wanted => new Promise(done => {
    const look = () => {
        const page = performance.getEntriesByType('navigation')[0];
        if (location.protocol !== 'https:' || !page || page.loadEventEnd === 0) return setTimeout(look, 20);
        const came = performance.getEntriesByType('resource').length;
        if (came < wanted && performance.now() < page.loadEventEnd + 5000) return setTimeout(look, 20);
        setTimeout(() => {
            // A browser requests its icon by itself, when it likes.
            const resources = performance.getEntriesByType('resource').filter(one => !one.name.endsWith('/favicon.ico'));
            const all = [page, ...resources];
            done({
                first_byte: page.responseStart,
                first_paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,
                largest_paint: globalThis.largest,
                last_byte: Math.max(...all.map(entry => entry.responseEnd)),
                loaded: page.loadEventEnd,
                objects: resources.length,
                names: resources.map(entry => [entry.name.split('/').pop(),
                    ...[entry.requestStart, entry.responseStart, entry.responseEnd].map(Math.round)].join(' ')),
                protocols: [...new Set(all.map(entry => entry.nextHopProtocol))],
            });
        }, 300);
    };
    look();
}))";

/// Waits until there is a page; its protocol.
pub(super) const PROTOCOL: &str = "new Promise(done => {
    const look = () => {
        const page = performance.getEntriesByType('navigation')[0];
        if (location.protocol === 'https:' && page && page.loadEventEnd > 0) done(page.nextHopProtocol);
        else setTimeout(look, 20);
    };
    look();
})";

/// Times in milliseconds since the navigation began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) first_byte: f64,
    pub(super) first_paint: f64,
    pub(super) largest_paint: f64,
    pub(super) last_byte: f64,
    pub(super) loaded: f64,
    /// CPU time of the browser's processes in milliseconds.
    #[serde(default)]
    pub(super) browser_cpu: f64,
    pub(super) objects: usize,
    /// Their files, and when each was requested, when its first byte came, and its last one.
    pub(super) names: Vec<String>,
    pub(super) protocols: Vec<String>,
}

/// A figure of a load, by its name.
pub(super) type Figure = (&'static str, fn(&Load) -> f64);
pub(super) const LARGEST_PAINT: Figure = ("largest contentful paint", |load| load.largest_paint);
pub(super) const LOADED: Figure = ("load event", |load| load.loaded);
pub(super) const FIGURES: [Figure; 6] = [
    ("first byte", |load| load.first_byte),
    ("first contentful paint", |load| load.first_paint),
    LARGEST_PAINT,
    ("last byte", |load| load.last_byte),
    LOADED,
    ("browser's CPU", |load| load.browser_cpu),
];
