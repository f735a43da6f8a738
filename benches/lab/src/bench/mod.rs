//! The bench: sets servers up in namespaces of their own, has them loaded, and reads what it cost them. `Lab` is the
//! interface; what is pure (statistics, noise, descriptions, templates, the reading of /proc and of tools' output)
//! stands in files of its own.

pub(crate) mod cgroup;
mod chains;
pub(crate) mod contender;
pub(crate) mod costs;
pub(crate) mod files;
pub(crate) mod floor;
pub(crate) mod guard;
pub(crate) mod h2load;
pub(crate) mod interrupt;
mod lab;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod metrics;
pub(crate) mod namespace;
pub(crate) mod noise;
mod observe;
pub(crate) mod options;
pub(crate) mod process;
mod procfs;
mod profile;
mod progress;
pub(crate) mod rival;
mod sampler;
pub(crate) mod sink;
pub(crate) mod stats;
mod task;
pub(crate) mod template;
mod variant;

pub(crate) use self::{
    files::Chain,
    lab::{Act, Assault, Lab, Trial},
    observe::Observe,
    progress::say,
    task::{Sampled, Share, Task},
    variant::Variant,
};

/// What stands for something in descriptions and templates; `Lab` fills them in.
pub(crate) const PLACEHOLDERS: [&str; 30] = [
    "BIN",               // the program's path
    "RUN",               // a folder of the run's own, where the expanded templates lie
    "ADDRESS",           // where to listen
    "PORT",              // UDP, and TCP for HTTP/1.1
    "ADMIN_PORT",        // TCP on 127.0.0.1, for contenders with metrics
    "STATUS_PORT",       // TCP on 127.0.0.1, for status without secrets, where a configuration has it
    "CERT",              // the certificate, PEM
    "KEY",               // its key
    "BOTH",              // certificate and key in one file
    "ORIGIN_PORT",       // on 127.0.0.1, HTTP/1.1: plain, or over TLS for contenders that connect so
    "ORIGIN_TLS_PORT",   // of the origin itself: where it speaks TLS
    "ORIGIN_HTTP2_PORT", // of the origin itself: where it speaks HTTP/2 without TLS
    "HTTP2",             // nothing for contenders that send HTTP/2 to the origin
    "WWW",               // what the origin serves
    "WORKERS",           // threads or processes that serve
    "H3",                // nothing for those with HTTP/3; for others `#`, which makes a line a comment
    // Likewise of lines that hold in one configuration and not in another (`contender::Configuration`).
    "NEAR",     // without a path
    "TUNED",    // over a path, tuned
    "UNTUNED",  // whatever is not tuned
    "AMPLE",    // without a path, or tuned
    "RAISED",   // whatever is not measured with defaults: limits that a single client's load would meet
    "UNRAISED", // with defaults
    "TCP",      // measured over HTTP/2 or HTTP/1.1
    "PLAIN",    // the connection to the origin is plain
    "HTTPS",    // it is TLS, and the origin's certificate is verified
    "FOUND",    // browsers find HTTP/3 by Alt-Svc, which some servers do not send by themselves
    // Of those that are attacked.
    "DEFAULT",  // as they come
    "FAMILY",   // 4 or 6, of the address's family
    "HARDENED", // with what their manuals offer against attacks
    "EXTRA",    // what an experiment adds to litequic's configuration
];
