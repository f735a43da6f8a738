//! Stores the fields of a header or of trailers: one buffer of text, and a list of lines that point into it. Pure.
//!
//! A name in the table of [`NameId`] is stored as a number, and its presence as a bit. Lines keep their order, and
//! repeated names stay.

mod convert;
mod decoded_fields;
mod field_line;
mod memory_pool;
mod name_table;
mod section;

pub use decoded_fields::{DecodedFields, DecodedLine};
pub use field_line::{FieldLine, Span};
pub use name_table::{FieldName, FieldNameRef, NameId, NameSet, name};
pub use section::Fields;
