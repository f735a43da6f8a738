//! The configuration of requests, compiled once for all workers: routes and the choice of one, and maintenance.

mod compiled;
mod maintenance;
mod routes;

pub use compiled::{Routing, RoutingFiles, check_health};
pub use maintenance::{ActiveMaintenance, Maintenance, MaintenanceError, MaintenanceTarget};
pub(crate) use routes::CompiledRoute;
