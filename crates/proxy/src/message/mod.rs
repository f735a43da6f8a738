//! Converts the heads of requests and responses between a client and an origin. Pure.

pub(crate) mod forwarded;
pub(crate) mod grpc;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod spelling;

pub(crate) use grpc::StreamingCall;
pub(crate) use request::{BodyFraming, FieldPolicy, RemovedFields, RouteHead};
