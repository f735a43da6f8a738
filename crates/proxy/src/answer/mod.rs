//! Makes litequic's own responses: the table of errors, and the pages that are their bodies. Pure but for
//! [`Pages::read_page_files`], which the control thread calls, and [`discard_body`].

mod error;
mod pages;

pub(crate) use error::Error;
pub use pages::{PageError, Pages};
pub(crate) use pages::{PageSet, StaticPage, discard_body};
