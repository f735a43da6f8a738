//! Converts [`Fields`] from and to the types of the crate `http`: for hyper and h2 over TCP, and for trailers in frames
//! of a body.
#![expect(clippy::disallowed_types, reason = "hyper and h2 have their fields in it")]

use super::{FieldNameRef, Fields, name_table::KNOWN_NAMES};
use crate::field_syntax::is_token;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::LazyLock;

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let bytes = map.iter().map(|(name, value)| name.as_str().len().saturating_add(value.len()));
        let mut fields = Self::with_capacity(map.len(), bytes.fold(0, usize::saturating_add));
        // A `HeaderName` may hold a quotation mark, which no token has.
        for (name, value) in map.iter().filter(|(name, _)| is_token(name.as_str().as_bytes())) {
            fields.append(FieldNameRef::from_lower_case_token(name.as_str()), value.as_bytes());
        }
        fields
    }
}

impl From<HeaderMap> for Fields {
    fn from(map: HeaderMap) -> Self {
        Self::from(&map)
    }
}

/// All values share one allocation, and the memory of the fields is reused. Fields beyond the map's limit of 32,768
/// names are left out.
impl From<Fields> for HeaderMap {
    fn from(fields: Fields) -> Self {
        let text = Bytes::copy_from_slice(&fields.text);
        let mut map = Self::with_capacity(fields.len().min(MAX_RESERVED_FIELDS));
        for line in &fields.lines {
            let found = line.resolve_line(&text);
            let name = HEADER_NAMES.get(found.id.table_index()).cloned().flatten();
            let name = name.or_else(|| HeaderName::from_bytes(found.name).ok());
            let value = HeaderValue::from_maybe_shared(text.slice_ref(found.value));
            if let (Some(name), Ok(value)) = (name, value) {
                // An error means that the map has reached its limit.
                let _ = map.try_append(name, value);
            }
        }
        map
    }
}

/// The names that have a number; `None` for pseudo-header fields.
static HEADER_NAMES: LazyLock<[Option<HeaderName>; KNOWN_NAMES.len()]> =
    LazyLock::new(|| KNOWN_NAMES.map(|name| HeaderName::from_bytes(name.as_bytes()).ok()));

/// Fields for which a map reserves memory at once, at most.
const MAX_RESERVED_FIELDS: usize = 1024;
