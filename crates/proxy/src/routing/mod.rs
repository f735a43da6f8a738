//! Routes requests: the configuration, compiled once for all workers, the choice of a route, and maintenance.

mod compiled;
mod maintenance;
mod route_index;
mod routes;

pub use compiled::{Routing, RoutingFiles, check_health};
pub use maintenance::{ActiveMaintenance, Maintenance, MaintenanceError, MaintenanceTarget};
pub(crate) use routes::CompiledRoute;
