//! The fields of a header or of trailers: one buffer of text, and a list of lines that point into it. Pure.
//!
//! A name that the table of [`NameId`] has is a number; whether such a name occurs is a bit. Order and repetition are
//! those in which the lines came.

mod convert;
mod decoded;
mod line;
mod memory;
mod names;
mod section;

pub use decoded::{DecodedFields, DecodedLine};
pub use line::{FieldLine, Span};
pub use names::{FieldName, FieldNameRef, NameId, NameSet, name};
pub use section::Fields;
