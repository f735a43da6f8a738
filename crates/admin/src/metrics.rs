//! Metrics of the admin addresses.

use litequic_telemetry::{Counter, metrics};

metrics! {
    /// Counters of all admin addresses.
    pub struct AdminMetrics {
        Counter("admin_limit_reached", "Times a limit of the admin addresses was reached.") {
            connections [limit: "connections"],
            header [limit: "header"],
            age [limit: "age"],
            requests [limit: "requests"],
            user [limit: "user"],
        }
    }
}
