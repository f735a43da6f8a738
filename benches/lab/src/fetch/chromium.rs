//! Chromium: a download as a user begins one, into a file.

use super::{Arguments, Client, Fetched, folder::Folder};
use crate::browser::{Browser, Origin};
use anyhow::{Result, bail};
use std::{fs, path::Path};

/// A page to download from, which is the origin's refusal to list a folder: HTML. A body of random bytes is none, and
/// Chromium would download it.
const PAGE: &str = "/";
/// What the body's file is called once it is whole.
const FILE: &str = "body";

pub(super) fn fetch(arguments: &Arguments) -> Result<Fetched> {
    let options = (arguments.client == Client::ChromiumAsked).then_some("AFIA");
    let origin = Origin { address: arguments.address, spki: &arguments.spki, http: arguments.http, options };
    let folder = Folder::new()?;
    let mut browser = arguments.start(|| Browser::start(&arguments.program, &origin))?;
    browser.open(&origin, PAGE)?;
    browser.download(&arguments.url(), folder.path(), FILE)?;
    let fetched = folder.watch(arguments, || {
        if browser.has_ended()? {
            bail!("Chromium ended while it downloaded");
        }
        Ok(is_whole(folder.path()))
    })?;
    browser.end()?;
    Ok(fetched)
}

/// Whether the body has its name: until then it has others.
fn is_whole(folder: &Path) -> bool {
    fs::metadata(folder.join(FILE)).is_ok()
}
