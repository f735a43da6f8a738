//! Connections of clients, as an operator lists and closes them: which are meant, what is reported of each, and which
//! come first in a list. Pure: front ends report their connections, and `memory::MemoryAccounts` looks through them.

mod best;
mod query;
mod report;
mod selector;

pub use best::Best;
pub use query::{DEFAULT_LIMIT, ListQuery, MAX_LIMIT, Selection, Sort};
pub use report::{ClientReport, Description, OpenConnection, TransportReport};
pub use selector::{ConnectionName, Selector, SelectorError};
