//! Firefox: a download as a user begins one, into a file.

use super::{Arguments, Fetched, folder::Folder};
use crate::{
    firefox::{Firefox, Protocols},
    http::Http,
};
use anyhow::{Result, bail};
use std::{fs, path::Path};

/// A page to download from: the origin's refusal to list a folder.
const PAGE: &str = "/";
/// What the body's file is called once it is whole.
const FILE: &str = "body";

pub(super) fn fetch(arguments: &Arguments) -> Result<Fetched> {
    let protocols = match arguments.http {
        Http::One => Protocols::Http1,
        Http::Two => Protocols::Http2,
        Http::Three => Protocols::Http3,
    };
    let wanted = arguments.http.alpn();
    let folder = Folder::new()?;
    let start = || Firefox::start(&arguments.program, arguments.address, &arguments.ca, protocols, None);
    let mut firefox = arguments.start(start)?;
    firefox.open(PAGE)?;
    let protocol = firefox.protocol()?;
    if protocol != wanted {
        bail!("Firefox used {protocol} rather than {wanted}");
    }
    firefox.download(&arguments.path, folder.path(), FILE)?;
    let fetched = folder.watch(arguments, || {
        if firefox.has_ended()? {
            bail!("Firefox ended while it downloaded");
        }
        Ok(is_whole(folder.path()))
    })?;
    firefox.end()?;
    Ok(fetched)
}

/// Whether the body has its name: until then an empty file has it.
fn is_whole(folder: &Path) -> bool {
    fs::metadata(folder.join(FILE)).is_ok_and(|file| file.len() > 0)
}
