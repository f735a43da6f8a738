//! Chromium: a page's `fetch` reads the body as it comes.

use super::{Arguments, Fetched};
use crate::browser::{Browser, Origin};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;

/// A page of the origin's, to fetch from: its bytes do not matter, whose it is does.
const PAGE: &str = "/b1000";

pub(super) fn fetch(arguments: &Arguments) -> Result<Fetched> {
    let origin = Origin { address: arguments.address, spki: &arguments.spki, h1: arguments.h1 };
    let mut browser = Browser::start(&arguments.program, &origin)?;
    browser.open(&origin, PAGE)?;
    let setup = json!({
        "url": arguments.url(),
        "cut": arguments.seconds,
        "beginning": arguments.beginning,
    });
    browser.evaluate(&format!("globalThis.run = ({DOWNLOAD})({setup}); true"))?;
    if arguments.beginning.is_some() {
        browser.evaluate("run.begun")?;
        arguments.begun()?;
    }
    let downloaded: Downloaded =
        serde_json::from_value(browser.evaluate("run.done")?).context("what the page reports")?;
    browser.end()?;
    Ok(Fetched {
        bytes: downloaded.bytes,
        seconds: downloaded.seconds,
        steady: downloaded.steady,
        whole: downloaded.bytes == arguments.bytes && downloaded.crc32 == arguments.expect_hash,
    })
}

/// What the page reports of the download.
#[derive(Deserialize)]
struct Downloaded {
    bytes: u64,
    seconds: f64,
    steady: Option<(u64, f64)>,
    crc32: u32,
}

/// Begins the download: a promise for its beginning, another for its end.
const DOWNLOAD: &str = "({ url, cut, beginning }) => {
    const table = new Uint32Array(256).map((_, byte) => {
        for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
        return byte;
    });
    let say;
    const begun = new Promise(done => { say = done; });
    const done = (async () => {
        const answer = await fetch(url, { cache: 'no-store' });
        if (!answer.ok) throw new Error('status ' + answer.status);
        const reader = answer.body.getReader();
        let bytes = 0, crc = -1, first = null, seconds = 0, mark = null;
        for (;;) {
            const { done, value } = await reader.read();
            if (done) break;
            const now = performance.now();
            if (first === null) first = now;
            const since = (now - first) / 1000;
            if (cut !== null && since >= cut) { seconds = cut; reader.cancel(); break; }
            if (beginning !== null && mark === null && since >= beginning) { mark = [bytes, since]; say(true); }
            if (cut === null) for (let at = 0; at < value.length; at++) crc = table[(crc ^ value[at]) & 255] ^ (crc >>> 8);
            bytes += value.length;
            seconds = since;
        }
        say(true);
        return { bytes, seconds, crc32: ~crc >>> 0, steady: mark && [bytes - mark[0], seconds - mark[1]] };
    })();
    done.catch(() => say(true));
    return { begun, done };
}";
