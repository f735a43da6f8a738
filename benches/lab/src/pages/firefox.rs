//! Firefox, headless. It has no pipe for commands: the page measures itself and reports to the origin, which writes the
//! report to its log.

use super::load::{MEASURE, OBSERVE};
use crate::bench::{
    interrupt,
    namespace::Network,
    process::{self, Server},
};
use anyhow::{Context as _, Result, bail};
use serde_json::Value as Json;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// For a page's report.
const PATIENCE: Duration = Duration::from_secs(60);
/// The page that reports, beside that which does not.
pub(super) const REPORTING: &str = "reporting.html";

/// A load by Firefox.
pub(super) struct Firefox<'a> {
    pub(super) program: &'a Path,
    /// The authority of the servers' certificate, PEM.
    pub(super) authority: &'a Path,
    /// Where the origin writes reports.
    pub(super) reports: &'a Path,
    pub(super) network: &'a Network,
    /// Whether HTTP/3 is known of the server, or off.
    pub(super) has_http3: bool,
    pub(super) port: u16,
}

/// The script of a page of so many objects that reports.
pub(super) fn script(objects: usize) -> String {
    format!(
        "<script>{OBSERVE}
{MEASURE}({objects}).then(load => {{ load.names = []; fetch('/report?' + encodeURIComponent(JSON.stringify(load))); }});
</script>"
    )
}

impl Firefox<'_> {
    /// Loads the page at `path`. Returns its report, and the CPU time of Firefox's processes in seconds, its start
    /// included.
    pub(super) fn load(&self, path: &str) -> Result<(Json, f64)> {
        let profile = tempfile::tempdir()?;
        self.prepare(profile.path())?;
        let before = fs::read_to_string(self.reports).unwrap_or_default().lines().count();
        let address = self.network.address;
        let url = format!("https://{address}:{}{path}", self.port);
        let folder = profile.path().display().to_string();
        let arguments = [
            "env".to_owned(),
            // Caches go to a home that is its own.
            format!("HOME={folder}"),
            self.program.display().to_string(),
            "--headless".to_owned(),
            "--no-remote".to_owned(),
            "--profile".to_owned(),
            folder,
            url,
        ];
        let command = process::command(&self.network.client, "0,1", &arguments, &BTreeMap::new());
        let mut firefox = Server::start("Firefox", command, profile.path().join("log"))?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let report = interrupt::wait_for(Duration::from_millis(100), || {
                firefox.check()?;
                Ok(fs::read_to_string(self.reports).unwrap_or_default().lines().nth(before).map(str::to_owned))
            })?;
            if let Some(report) = report {
                return Ok((
                    serde_json::from_str(&decoded(&report)).context("the page's report")?,
                    firefox.cpu().total(),
                ));
            }
        }
        bail!("the page does not report: {}", firefox.quote())
    }

    /// Writes a profile that trusts the authority and requests nothing by itself.
    fn prepare(&self, profile: &Path) -> Result<()> {
        let database = format!("sql:{}", profile.display());
        let authority = self.authority.display().to_string();
        for arguments in [vec!["-N", "--empty-password"], vec!["-A", "-n", "authority", "-t", "C,,", "-i", &authority]]
        {
            let mut certutil = Command::new("certutil");
            let status = certutil.args(["-d", &database]).args(arguments).status().context("certutil")?;
            if !status.success() {
                bail!("certutil fails");
            }
        }
        let mapping = format!("\"{};h3=:{}\"", self.network.address, self.port);
        let mut preferences = vec![
            ("network.http.http3.enable", self.has_http3.to_string()),
            ("network.http.http3.disable_when_third_party_roots_found", "false".to_owned()),
            // Whatever the environment says.
            ("network.proxy.type", "0".to_owned()),
            // In a namespace without a default route it takes itself for offline.
            ("network.manage-offline-status", "false".to_owned()),
            ("network.captive-portal-service.enabled", "false".to_owned()),
            ("network.connectivity-service.enabled", "false".to_owned()),
            ("app.update.disabledForTesting", "true".to_owned()),
            ("app.normandy.enabled", "false".to_owned()),
            ("browser.aboutwelcome.enabled", "false".to_owned()),
            ("browser.safebrowsing.malware.enabled", "false".to_owned()),
            ("browser.safebrowsing.phishing.enabled", "false".to_owned()),
            ("datareporting.policy.dataSubmissionEnabled", "false".to_owned()),
            ("extensions.getAddons.cache.enabled", "false".to_owned()),
            ("services.settings.server", "\"http://127.0.0.1:9/\"".to_owned()),
        ];
        if self.has_http3 {
            preferences.push(("network.http.http3.alt-svc-mapping-for-testing", mapping));
        }
        let lines: String =
            preferences.iter().map(|(name, value)| format!("user_pref(\"{name}\", {value});\n")).collect();
        fs::write(profile.join("user.js"), lines)?;
        Ok(())
    }
}

/// A query's text without its percent-encoding.
fn decoded(query: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = query.bytes();
    while let Some(byte) = rest.next() {
        let digits = |rest: &mut std::str::Bytes| {
            let (high, low) = (char::from(rest.next()?).to_digit(16)?, char::from(rest.next()?).to_digit(16)?);
            u8::try_from(16 * high + low).ok()
        };
        bytes.extend(if byte == b'%' { digits(&mut rest) } else { Some(byte) });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the origin of a lab's folder writes reports.
pub(super) fn reports(folder: &Path) -> PathBuf {
    folder.join("origin").join("reports")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_from_its_query() {
        assert_eq!(decoded("%7B%22a%22%3A1.5%7D"), "{\"a\":1.5}");
        assert!(script(34).contains("(34)"));
    }
}
