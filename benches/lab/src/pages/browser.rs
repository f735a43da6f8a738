//! The browser of a run, and a load in one that was started for it.

use super::load::{MEASURE, OBSERVE};
use crate::{browser::Browser, firefox::Firefox};
use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The browser of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Program {
    #[default]
    Chromium,
    Firefox,
}

impl Program {
    /// How reports call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chromium => "Chromium",
            Self::Firefox => "Firefox",
        }
    }

    /// The name before a path in `--bin`, and the name of the program on the PATH.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Chromium => ("chromium", "chromium"),
            Self::Firefox => ("firefox", "firefox-esr"),
        }
    }
}

/// A browser that was started for one load.
pub(super) enum Started {
    /// With the server's port, at which it is `localhost`.
    Chromium(Browser, u16),
    Firefox(Firefox),
}

impl Started {
    /// Loads the page at `path`, which has so many objects. Returns its report, and the CPU time of all of the browser's
    /// processes, in seconds.
    pub(super) fn load(&mut self, path: &str, objects: usize) -> Result<(Json, f64)> {
        let measure = format!("{MEASURE}({objects})");
        match self {
            Self::Chromium(browser, port) => {
                browser.load(&format!("https://localhost:{port}{path}"), OBSERVE, &measure)
            }
            Self::Firefox(firefox) => firefox.load(path, OBSERVE, &measure),
        }
    }

    /// Has it end by itself: only then is its log whole.
    pub(super) fn end(&mut self) -> Result<()> {
        match self {
            Self::Chromium(browser, _) => browser.end(),
            Self::Firefox(firefox) => firefox.end(),
        }
    }
}
