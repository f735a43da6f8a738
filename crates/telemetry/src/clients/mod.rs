//! Lists and closes clients' connections for an operator: which are selected, what is reported of each, and which come
//! first in a list; and denies the clients of networks. Pure: front ends report their connections, and
//! `resources::connections::ConnectionRegistry` scans them.

mod deny_list;
mod list_order;
mod query;
mod report;
mod selector;
mod top_n;

pub use deny_list::{DeniedNetwork, DenyError, DenyList, MAX_DENIAL_TIME, MAX_DENIED};
pub use list_order::ListOrder;
pub use query::{DEFAULT_LIMIT, ListQuery, MAX_LIMIT, Selection};
pub use report::{ClientReport, ConnectionDescription, OpenConnection, TransportReport};
pub use selector::{ConnectionName, Selector, SelectorError};
pub use top_n::TopN;
