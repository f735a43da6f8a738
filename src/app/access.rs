//! What an access log's line says of a request: from what was noted on its way to the words that the operator chose.

use crate::{
    config::{self, AccessField, AccessFormat, AccessTarget, Share},
    exchange::{Facts, Listener, Records},
    telemetry::{
        WorkerMetrics,
        access::{AccessLog, Line, Lines, Style, Target},
    },
};
use std::{cell::RefCell, net::SocketAddr, rc::Rc, sync::Arc};

/// Where the configuration has lines go.
pub(super) fn target(target: &AccessTarget) -> Target {
    match target {
        AccessTarget::Stderr => Target::Stderr,
        AccessTarget::File(path) => Target::File(path.clone()),
    }
}

/// A worker's lines before its thread began.
pub(super) struct Factory {
    fields: Vec<AccessField>,
    sample: Share,
    lines: Lines,
}

/// One worker's lines.
struct Access {
    fields: Vec<AccessField>,
    sample: Share,
    lines: Rc<RefCell<Lines>>,
}

/// Hands lines over that would wait for others.
pub(super) struct Flusher(Option<Rc<RefCell<Lines>>>);

impl Factory {
    /// As `config` has them, to `log`.
    pub(super) fn new(config: &config::AccessLog, log: &AccessLog, metrics: Arc<WorkerMetrics>) -> Self {
        let style = match config.format {
            AccessFormat::Json => Style::Json,
            AccessFormat::Logfmt => Style::Logfmt,
        };
        Self { fields: config.fields.clone(), sample: config.sample, lines: log.lines(style, metrics) }
    }

    /// On the worker's thread.
    pub(super) fn records(this: Option<Self>) -> (Records, Flusher) {
        let Some(Self { fields, sample, lines }) = this else { return (Records::default(), Flusher(None)) };
        let lines = Rc::new(RefCell::new(lines));
        let flusher = Flusher(Some(Rc::clone(&lines)));
        (Records::for_listener(Access { fields, sample, lines }), flusher)
    }
}

impl Flusher {
    /// To be called now and then.
    pub(super) fn flush(&self) {
        if let Some(lines) = &self.0 {
            lines.borrow_mut().flush();
        }
    }
}

impl Listener for Access {
    fn wants(&self) -> bool {
        self.sample == Share::ALL || rand::random_range(0..Share::ALL.0) < self.sample.0
    }

    fn ended(&self, facts: &Facts) {
        self.lines.borrow_mut().add(|line| self.fields.iter().for_each(|field| write(line, *field, facts)));
    }
}

fn write(line: &mut Line<'_>, field: AccessField, facts: &Facts) {
    let key = field.name();
    // What stands behind `?` may be nobody's business (a token), so that it is a field of its own.
    let target = |n| facts.path.splitn(2, |byte| *byte == b'?').nth(n).unwrap_or_default();
    let address = |address: SocketAddr| address.to_string();
    match field {
        AccessField::Time => line.time(key, facts.began),
        AccessField::RequestId => line.text(key, &facts.request_id),
        AccessField::Client => line.plain(key, facts.client.address.ip()),
        AccessField::ClientPort => line.text(key, address(facts.client.address).as_bytes()),
        AccessField::Local => line.text(key, address(facts.client.local).as_bytes()),
        AccessField::Protocol => line.plain(key, facts.client.protocol.name()),
        AccessField::ServerName => line.text(key, facts.client.server_name.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Method => line.text(key, &facts.method),
        AccessField::Host => line.text(key, &facts.host),
        AccessField::Path => line.text(key, target(0)),
        AccessField::Query => line.text(key, target(1)),
        AccessField::UserAgent => line.text(key, &facts.user_agent),
        AccessField::Referer => line.text(key, &facts.referer),
        AccessField::TraceId => line.text(key, facts.trace_id().unwrap_or_default().as_bytes()),
        AccessField::Route => line.text(key, facts.route.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Origin => line.text(key, facts.origin.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Status => {
            if let Some(status) = facts.status {
                line.number(key, status.as_u16().into());
            }
        }
        AccessField::BytesIn => line.number(key, facts.received),
        AccessField::BytesOut => line.number(key, facts.sent),
        AccessField::Duration => line.seconds(key, facts.started.elapsed()),
        AccessField::FirstByte => {
            if let Some(duration) = facts.first_byte {
                line.seconds(key, duration);
            }
        }
        AccessField::OriginTime => {
            if let Some(duration) = facts.origin_time {
                line.seconds(key, duration);
            }
        }
        AccessField::End => line.plain(key, facts.end.word()),
        AccessField::Error => line.text(key, facts.error.unwrap_or_default().as_bytes()),
    }
}
