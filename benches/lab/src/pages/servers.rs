//! Who serves the pages, and over which protocol a browser gets them.

use super::{
    Arguments,
    browser::{Program, Started},
    load,
};
use crate::{
    bench::{
        contender::{Configuration, Contender},
        files::Files,
        interrupt,
        namespace::{Namespace, Network, inside},
        process::{self, Server},
        say,
        template::Values,
    },
    browser::{Browser, Learned, Transport},
    firefox::{Firefox, Protocols},
    http::Http,
};
use anyhow::{Context as _, Result};
use std::{
    env, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// The protocol of a contender's loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// HTTP/3 as browsers find it: a response over HTTP/2, to an earlier browser, had the server's Alt-Svc. Firefox is told of
    /// it by a preference.
    Http3,
    /// HTTP/3 by an option of the browser, which knows nothing of the server.
    Forced,
}

impl Protocol {
    /// The protocol's name in `nextHopProtocol` (ALPN).
    pub(super) fn alpn(self) -> &'static str {
        match self {
            Self::Http1 => Http::One.alpn(),
            Self::Http2 => Http::Two.alpn(),
            Self::Http3 | Self::Forced => Http::Three.alpn(),
        }
    }
}

/// The guide's rule (docs/how-to/send-the-hero-image-first.md) for the image of [`super::site::Page::Late`].
const RULE: &str = r#"[[routes]]
path_prefix = "/"
origin = "origin"

[[routes]]
path = "/late/hero.png"
origin = "origin"
response_headers = { set = { priority = "u=1" } }
"#;

/// Who serves, by the description of that name, at which port, and what is added to litequic's configuration.
const SERVERS: [(&str, &str, u16, &str); 8] = [
    ("litequic", "litequic", 8441, ""),
    ("litequic without priorities", "litequic", 8442, "[litequic]\npriorities = false"),
    ("litequic with a rule", "litequic", 8446, RULE),
    ("litequic with BBR", "litequic", 8448, "[litequic]\ncongestion = \"bbr\""),
    ("nginx", "nginx", 8443, ""),
    ("caddy", "caddy", 8444, ""),
    ("haproxy", "haproxy", 8447, ""),
    ("h2o", "h2o", 8445, ""),
];
/// What is measured: a server by its name, and a protocol.
const CONTENDERS: [(&str, &str, Protocol); 18] = [
    ("litequic h3", "litequic", Protocol::Http3),
    ("litequic h3 without priorities", "litequic without priorities", Protocol::Http3),
    ("litequic h3 with a rule", "litequic with a rule", Protocol::Http3),
    ("litequic h3 with BBR", "litequic with BBR", Protocol::Http3),
    ("litequic h3 forced", "litequic", Protocol::Forced),
    ("litequic h3 forced without priorities", "litequic without priorities", Protocol::Forced),
    ("litequic h2", "litequic", Protocol::Http2),
    ("litequic h2 without priorities", "litequic without priorities", Protocol::Http2),
    ("litequic h2 with a rule", "litequic with a rule", Protocol::Http2),
    ("litequic h1", "litequic", Protocol::Http1),
    ("nginx h3", "nginx", Protocol::Http3),
    ("nginx h2", "nginx", Protocol::Http2),
    ("caddy h3", "caddy", Protocol::Http3),
    ("caddy h2", "caddy", Protocol::Http2),
    ("caddy h3 forced", "caddy", Protocol::Forced),
    ("haproxy h3", "haproxy", Protocol::Http3),
    ("haproxy h2", "haproxy", Protocol::Http2),
    ("h2o h3", "h2o", Protocol::Http3),
];
const ORIGIN_PORT: u16 = 8480;
const ORIGIN_TLS_PORT: u16 = 8481;
const ORIGIN_HTTP2_PORT: u16 = 8482;
/// The distance of a server's admin port from its own.
const ADMIN: u16 = 100;

/// For a server to listen.
const READY: Duration = Duration::from_secs(10);

/// A server and a protocol.
#[derive(Debug, Clone)]
pub(super) struct Entrant {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// What a browser has learned of the server, where HTTP/3 is to be found.
    pub(super) learned: Option<Learned>,
}

/// Where servers run.
pub(super) struct Setting<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) network: &'a Network,
    pub(super) files: &'a Files,
    pub(super) folder: &'a Path,
}

/// Servers that run.
pub(super) struct Running {
    pub(super) entrants: Vec<Entrant>,
    _servers: Vec<Server>,
}

impl Setting<'_> {
    /// Starts the origin, and the servers that are there; browsers learn of their HTTP/3.
    pub(super) fn start(&self) -> Result<Running> {
        let descriptions = Contender::built_in()?;
        let find = |name: &str| descriptions.iter().find(|one| one.name == name).with_context(|| format!("no {name}"));
        let mut servers = vec![self.server(find("origin")?, "origin", ORIGIN_PORT, "")?.context("there is no nginx")?];
        self.wait_for(&mut servers, ORIGIN_PORT)?;
        let only = &self.arguments.only;
        let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
        let chromium = self.arguments.browser == Program::Chromium;
        let mut entrants = Vec::new();
        for (name, description, port, extra) in SERVERS {
            let of: Vec<_> = CONTENDERS
                .iter()
                .filter(|(one, server, protocol)| {
                    *server == name && is_wanted(one) && (chromium || *protocol != Protocol::Forced)
                })
                .collect();
            if of.is_empty() {
                continue;
            }
            let Some(server) = self.server(find(description)?, name, port, extra)? else {
                say(&format!("{name} is not there"));
                continue;
            };
            servers.push(server);
            self.wait_for(&mut servers, port)?;
            for (name, _, protocol) in of {
                let mut entrant = Entrant { name, port, protocol: *protocol, learned: None };
                if chromium && *protocol == Protocol::Http3 {
                    entrant.learned = Some(self.learn(&entrant).with_context(|| (*name).to_owned())?);
                }
                entrants.push(entrant);
            }
        }
        // In the order of the table.
        entrants.sort_by_key(|entrant| CONTENDERS.iter().position(|(one, ..)| *one == entrant.name));
        Ok(Running { entrants, _servers: servers })
    }

    /// Has a browser learn of a server's Alt-Svc, by a page that is none of those that are measured.
    fn learn(&self, entrant: &Entrant) -> Result<Learned> {
        let mut browser = self.chromium(entrant, None)?;
        let url = format!("https://localhost:{}/", entrant.port);
        let (load, _) = browser.load(&url, "", load::PROTOCOL)?;
        if load != Protocol::Http2.alpn() {
            anyhow::bail!("the first load came over {load}");
        }
        browser.learned()
    }

    /// The program of the run's browser, if it is there.
    pub(super) fn program(&self) -> Option<PathBuf> {
        let (key, name) = self.arguments.browser.names();
        if let Some(given) = self.given(key) {
            return given.is_file().then_some(given);
        }
        let folders = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// A browser in the client's namespace for an entrant's protocol; it logs to `log`.
    pub(super) fn browser(&self, entrant: &Entrant, log: Option<&Path>) -> Result<Started> {
        match self.arguments.browser {
            Program::Chromium => Ok(Started::Chromium(self.chromium(entrant, log)?, entrant.port)),
            Program::Firefox => {
                let program = self.program().context("there is no firefox-esr")?;
                let address: IpAddr = self.network.address.parse()?;
                let server = (address, entrant.port).into();
                let protocols = match entrant.protocol {
                    Protocol::Http1 => Protocols::Http1,
                    Protocol::Http2 => Protocols::Http2,
                    Protocol::Http3 | Protocol::Forced => Protocols::Http3,
                };
                let (Namespace { namespace }, certificate) = (&self.network.client, &self.files.certificate);
                let start = || Firefox::start(&program, server, certificate, protocols, log);
                inside(namespace, start).map(Started::Firefox)
            }
        }
    }

    fn chromium(&self, entrant: &Entrant, log: Option<&Path>) -> Result<Browser> {
        let program = self.program().context("there is no chromium")?;
        let address: IpAddr = self.network.address.parse()?;
        let Namespace { namespace } = &self.network.client;
        let ports = SERVERS.map(|(_, _, port, _)| port);
        let transport = match entrant.protocol {
            Protocol::Forced => Transport::Quic(&ports, None),
            Protocol::Http3 => Transport::Found(entrant.learned.as_ref()),
            Protocol::Http2 => Transport::NoQuic,
            Protocol::Http1 => Transport::Http1,
        };
        // A child has the namespace of the thread that starts it.
        inside(namespace, || Browser::launch(&program, address, &self.files.spki, transport, log))
    }

    fn given(&self, name: &str) -> Option<PathBuf> {
        self.arguments.bin.iter().find_map(|bin| Some(PathBuf::from(bin.strip_prefix(name)?.strip_prefix('=')?)))
    }

    /// Starts a server; `None` if its program is not there.
    fn server(&self, contender: &Contender, name: &str, port: u16, extra: &str) -> Result<Option<Server>> {
        let given = self.given(&contender.name);
        let Some(program) = contender.find(given.as_deref()) else { return Ok(None) };
        let folder = self.folder.join(name.replace(' ', "-"));
        fs::create_dir_all(&folder)?;
        let mut values = Values::default();
        values.set("BIN", program.display());
        values.set("RUN", folder.display());
        values.set("ADDRESS", self.network.address);
        values.set("PORT", port);
        values.set("ADMIN_PORT", port + ADMIN);
        values.set("CERT", self.files.certificate.display());
        values.set("KEY", self.files.key.display());
        values.set("BOTH", self.files.both.display());
        values.set("ORIGIN_PORT", ORIGIN_PORT);
        values.set("ORIGIN_TLS_PORT", ORIGIN_TLS_PORT);
        values.set("ORIGIN_HTTP2_PORT", ORIGIN_HTTP2_PORT);
        values.set("WWW", self.files.www.display());
        values.set("WORKERS", 1);
        values.set("EXTRA", extra);
        for name in ["H3", "TCP", "PLAIN", "FOUND"] {
            values.set(name, "");
        }
        for name in ["HTTPS", "HTTP2"] {
            values.set(name, "#");
        }
        for (name, holds) in Configuration::Defaults.holds() {
            values.set(name, if holds { "" } else { "#" });
        }
        for (file, template) in &contender.templates {
            fs::write(folder.join(file), values.expand(template, file)?)?;
        }
        let environment = contender
            .environment
            .iter()
            .map(|(name, value)| Ok((name.clone(), values.expand(value, "environment")?)))
            .collect::<Result<_>>()?;
        let command = contender.expand(&contender.command, &values)?;
        let command = process::command(&self.network.server, "0", &command, &environment);
        Ok(Some(Server::start(name, command, folder.join("log"))?))
    }

    fn wait_for(&self, servers: &mut [Server], port: u16) -> Result<()> {
        interrupt::wait_for(READY, || {
            servers.iter_mut().try_for_each(Server::check)?;
            Ok((self.network.listening_at(port, true)? > 0).then_some(()))
        })?
        .with_context(|| format!("no server listens at {port}"))
    }
}
