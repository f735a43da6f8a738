//! Administration interface: liveness, readiness, metrics, status, configuration, reload, maintenance, drain.
//! The protocol is plain HTTP/1.1 on the control thread, which responds while every worker is busy.
//!
//! | path       | method    | probes | listen | answer                                                              |
//! |------------|-----------|--------|--------|---------------------------------------------------------------------|
//! | `/healthz` | GET, HEAD | yes    | yes    | 200 while every worker's loop turns, else 503 with the worker       |
//! | `/readyz`  | GET, HEAD | yes    | yes    | 200 while new clients are accepted, else 503 with the reason        |
//! | `/metrics` | GET, HEAD | yes    | yes    | OpenMetrics text                                                    |
//! | `/`        | GET, HEAD | no     | yes    | the status page                                                     |
//! | `/status`  | GET, HEAD | no     | yes    | JSON: counters, workers, origins, certificates                      |
//! | `/clients` | GET, HEAD | no     | yes    | JSON: connections of clients, the busiest first                     |
//! | `/denied`  | GET, HEAD | no     | yes    | JSON: networks whose clients are refused                            |
//! | `/config`  | GET, HEAD | no     | yes    | JSON: every key in force, without secrets                           |
//! | `/reload`  | POST      | no     | yes    | 200 with what changed, or 422 with every fault and nothing changed  |
//! | `/maintenance` | POST  | no     | yes    | 200 with the routes that are in maintenance now, or 422            |
//! | `/close`   | POST      | no     | yes    | 200 with how many connections were closed                           |
//! | `/deny`    | POST      | no     | yes    | 200: a network's clients are refused for a time, or 422             |
//! | `/allow`   | POST      | no     | yes    | 200: the network is allowed again, or 422                           |
//! | `/qlog`    | POST      | no     | yes    | 200: packets of connections over QUIC as qlog, as they come, or 422 |
//! | `/drain`   | POST      | no     | yes    | 202: readiness fails from now on, and the process ends in good order |
//!
//! Without the token of `listen`, `/metrics`, `/status`, `/clients`, `/denied` and `/config` answer only requests by an
//! IP address, `localhost` or a name in `names`. The admin socket has all resources of `listen` without a token and for
//! any name, because the kernel reports the user of each client. If a token is set, `listen` requires the token for all
//! resources but the page, `/healthz` and `/readyz`.
//!
//! Uses `litequic-base`, `litequic-config`, `litequic-resources` and `litequic-telemetry`. The program uses this crate,
//! and passes functions of other crates ([`AdminHooks`]).
#![expect(clippy::disallowed_types, reason = "hyper and h2 have their fields in it")]
// String slices panic at an index within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod admin_response;
mod body;
mod cached_metrics;
mod clients;
mod connection_slots;
mod default_socket;
mod denial;
mod history;
mod maintenance;
mod mechanisms;
mod metrics;
mod objects;
mod page;
mod problems;
mod qlog;
mod query;
mod readiness;
mod server;
mod state;
mod status;
mod status_response;
mod token;

pub use cached_metrics::CachedMetrics;
pub use clients::{ClientControl, ClientList, ClientStatus, CloseOrder, WorkersReply, format_list_query};
pub use default_socket::{DefaultSocket, SOCKET_NAME, default_socket_directories, sockets_in};
pub use denial::{DeniedList, DeniedStatus, DenyOrder, parse_client_network};
pub use history::{History, HistoryPoint, MetricHistory, record_history};
pub use maintenance::{MaintenanceOrder, SwitchMaintenance, format_maintenance};
pub use mechanisms::{MechanismWork, mechanism_rows};
pub use metrics::AdminMetrics;
pub use objects::Samples;
pub use problems::Problem;
pub use qlog::{QlogLines, QlogOrder};
pub use readiness::{OriginProbe, Readiness};
pub use server::{AdminLimits, AdminServer};
pub use state::{
    AdminHooks, AdminState, OrderRenewal, PROCESS_FIELD, ProcessIdentity, ReadStatus, ReloadRequest, SERVER_FIELD,
    Surface, UNCHANGED_PREFIX, WORKER_DEADLINE,
};
pub use status::{
    AcmeStatus, CertificateStatus, DerivedStatus, DescriptorSideStatus, DescriptorStatus, Http3Status,
    MaintenanceStatus, MechanismStatus, OriginStatus, ReloadStatus, ServerIdStatus, Status, TracesStatus, WorkerStatus,
};
pub use token::{Token, TokenError};
