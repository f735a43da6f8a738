//! Implements `Debug` for types whose other fields are secrets, or have no `Debug`.

/// Implements `Debug` for a type by its name and the listed fields alone.
#[macro_export]
macro_rules! partial_debug {
    ($Type:ident $(<$param:ident>)? $({ $($field:ident),+ })?) => {
        impl $(<$param>)? ::std::fmt::Debug for $Type $(<$param>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($Type));
                $($(shown.field(stringify!($field), &self.$field);)+)?
                shown.finish_non_exhaustive()
            }
        }
    };
}
