//! litequic's own answers: the table of errors, and the pages that are their bodies. Pure but for [`Pages::load`],
//! which the control thread calls, and [`discard`].

mod error;
mod pages;

pub(crate) use error::Error;
pub use pages::{PageError, Pages};
pub(crate) use pages::{PageSet, StaticPage, discard_body};
