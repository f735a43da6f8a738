//! What contenders are made to do, and who takes part.

use super::{
    cgroup::Limit,
    contender::{Configuration, Contender, Kind},
    files::Chain,
    load::{Generator, Load, Player},
    namespace::{SocketBuffers, Topology, VethShape},
    observe::Observe,
    rival::Turns,
};
use crate::{
    http::Http,
    link,
    load::{self, Group},
    report::Case,
};
use std::time::Duration;

/// Something that contenders are made to do, and who takes part.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// How reports call it.
    pub(crate) case: Case,
    /// The load.
    pub(crate) load: Load,
    /// Worker threads or processes of each contender.
    pub(crate) workers: u16,
    /// Connections that others hold open, and that are idle, while the load is measured.
    pub(crate) crowd: u32,
    /// Requests of the load that are sent before it is measured, and not counted: connections to the origin are open then.
    pub(crate) warm_up: Option<u64>,
    /// Who takes part: kinds, and, unless empty, names.
    pub(crate) kinds: Vec<Kind>,
    pub(crate) names: Vec<String>,
    /// What is watched.
    pub(crate) observe: Observe,
    /// The emulated path between client and server.
    pub(crate) path: Option<link::Path>,
    /// What joins client and server, where an experiment has several; `None`: as its other tasks have it.
    pub(crate) topology: Option<Topology>,
    /// The sockets' buffers.
    pub(crate) buffers: SocketBuffers,
    /// The shape of a veth pair.
    pub(crate) shape: VethShape,
    /// The client has its core alone, and what it costs is measured: the origin is on the server's.
    pub(crate) is_client_alone: bool,
    /// Links with that path, each with a client of its own, and what others do over it: rounds that take the time of
    /// one.
    pub(crate) links: u8,
    /// Delay and throughput over the path are sampled so.
    pub(crate) sampled: Option<Sampled>,
    /// What others do to the server meanwhile; it is not measured.
    pub(crate) beside: Option<Load>,
    /// The contender that serves this; `None`: the one that is measured.
    pub(crate) beside_from: Option<&'static str>,
    /// Contenders are tuned for such paths, those that can be.
    pub(crate) tuned: bool,
    /// Contenders are measured as users get them, with defaults, rather than with limits raised for one client.
    pub(crate) defaults: bool,
    /// The protocol to clients of contenders with HTTP/3.
    pub(crate) front: Http,
    /// The group of TLS that clients offer alone; `None`: what they like, which is X25519.
    pub(crate) group: Option<Group>,
    /// The certificate that contenders show.
    pub(crate) chain: Chain,
    /// What contenders get of their core.
    pub(crate) share: Share,
    /// More environment for contenders.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Rounds, where the command line does not say.
    pub(crate) rounds: usize,
}

/// How much of its core a contender gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Share {
    All,
    /// By a cgroup's quota, given anew each period.
    Quota(f64, Duration),
    /// By a rival that takes the rest, in turns of 10 ms.
    Left(f64),
}

impl Share {
    /// In words.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Quota(share, period) => {
                let (share, period) = (share * 100.0, period.as_millis());
                format!("; the server has a quota of {share:.0} % of a core, in periods of {period} ms")
            }
            Self::Left(share) => {
                format!("; a rival leaves {:.0} % of a core to the server, in periods of 10 ms", share * 100.0)
            }
        }
    }

    /// The limit of a quota.
    pub(crate) fn quota(self) -> Option<Limit> {
        if let Self::Quota(share, period) = self { Some(Limit::Cpu(share, period)) } else { None }
    }
}

/// How a path is sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampled {
    /// A sample's time.
    pub(crate) step: Duration,
    /// For so long from where what is measured begins.
    pub(crate) time: Duration,
}

impl Task {
    /// The turns of the rival for the server's core, where there is one.
    pub(crate) fn rival(&self) -> Option<Turns> {
        match self.share {
            Share::Left(share) => Some(Turns::leaving(share)),
            Share::All | Share::Quota(..) => self.case.saturated.then_some(Turns::HALF),
        }
    }

    /// Whether the origin is the one that counts uploads, and waits where it is told to.
    pub(crate) fn is_served_by_sink(&self) -> bool {
        self.load.kind == load::Kind::Upload || matches!(self.load.generator, Generator::Mix(..))
    }

    /// How contenders are configured.
    pub(crate) fn configuration(&self) -> Configuration {
        match &self.path {
            _ if self.defaults => Configuration::Defaults,
            // Alike whatever gives the rate.
            _ if self.is_client_alone => Configuration::Near,
            None => Configuration::Near,
            Some(_) if self.tuned => Configuration::Tuned,
            Some(_) => Configuration::AsItComes,
        }
    }

    /// Whether a contender takes part.
    pub(crate) fn takes(&self, contender: &Contender) -> bool {
        // Over a path TCP's congestion control decides, so a measurement over TCP names it; others do not.
        // The floor has no congestion control at all.
        let is_meant = match contender.kind {
            Kind::H1 => contender.congestion_control.is_some() == self.path.is_some(),
            Kind::Floor => self.path.is_none(),
            Kind::H3 | Kind::Origin => true,
        };
        let front = contender.front.unwrap_or(self.front);
        let speaks = match self.load.generator {
            Generator::Client(client) => contender.kind == Kind::H3 && front == Http::Three || client.speaks_tcp(),
            Generator::Own { .. } => contender.front.is_none(),
            Generator::H2load | Generator::Counting | Generator::Mix(..) | Generator::Viewers(_) => true,
        };
        let speaks = speaks && (front == Http::Three || contender.fronts.iter().any(|name| name == front.name()));
        let is_named = self.names.is_empty() || contender.is_given || self.names.contains(&contender.name);
        let is_meant = is_meant && (!self.tuned || contender.tuned.is_some());
        is_meant && speaks && is_named && self.kinds.contains(&contender.kind)
    }

    /// The task as a contender gets it: its clients acknowledge as its description says.
    pub(crate) fn by_clients_of(&self, contender: &Contender) -> Self {
        let mut task = self.clone();
        task.front = contender.front.unwrap_or(self.front);
        match &mut task.load.generator {
            Generator::Own { ack_threshold, .. } => {
                if let Some(own) = &contender.ack_threshold {
                    ack_threshold.clone_from(own);
                }
            }
            Generator::Viewers(viewers) => {
                if let (Player::Emulated(rule), true) = (viewers.player, contender.is_watched_by_dash_js) {
                    viewers.player = Player::DashJs(rule.into());
                }
            }
            Generator::H2load | Generator::Counting | Generator::Mix(..) | Generator::Client(_) => {}
        }
        task
    }
}
