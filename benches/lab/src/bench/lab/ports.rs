//! The ports of a run's servers, contenders and origins, all in one namespace. No two may be the same.

/// Port of a contender for its clients: UDP, and TCP for HTTP/1.1 and HTTP/2.
pub(super) const PORT: u16 = 8443;
/// Port of a contender's metrics.
pub(super) const ADMIN_PORT: u16 = 8444;
/// Port, for its clients, of a contender that others load beside the measured one.
pub(super) const OTHER_PORT: u16 = 8445;
/// Port of the metrics of a contender that others load beside the measured one.
pub(super) const OTHER_ADMIN_PORT: u16 = 8446;
/// Port of a contender's status while it is attacked.
pub(super) const STATUS_PORT: u16 = 8447;
/// From a port for metrics to that of the same contender's server for the next link.
pub(super) const NEXT_LINK: u16 = 10;
/// Port of the origin that serves files, plain.
pub(super) const ORIGIN_PORT: u16 = 8080;
/// Port of the origin that serves files, over TLS.
pub(super) const ORIGIN_TLS_PORT: u16 = 8082;
/// Port of the origin that serves files, over HTTP/2 without TLS.
pub(super) const ORIGIN_HTTP2_PORT: u16 = 8084;
/// Port of the origin that counts uploads, plain.
pub(super) const SINK_PORT: u16 = 8081;
/// Port of the origin that counts uploads, over TLS.
pub(super) const SINK_TLS_PORT: u16 = 8083;
