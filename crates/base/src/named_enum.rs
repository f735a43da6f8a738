//! Declares enums whose variants have names for people or files.

/// Declares an enum without fields: `NAMES` has its values by their names, in the order of the declaration, and the
/// function, if there is one, returns the name of a value. `Variant(3) = "name"` has the discriminant 3.
///
/// ```
/// litequic_base::named_enum! {
///     /// Congestion control.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum Congestion {
///         /// CUBIC (RFC 9438).
///         Cubic = "cubic",
///         /// BBR version 2.
///         Bbr = "bbr",
///     }
///     /// Name of the value in the configuration.
///     fn controller_name;
/// }
/// assert_eq!(Congestion::NAMES, [("cubic", Congestion::Cubic), ("bbr", Congestion::Bbr)]);
/// assert_eq!(Congestion::Bbr.controller_name(), "bbr");
/// ```
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$note:meta])* $Variant:ident $(($value:literal))? = $name:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $Enum {
            $($(#[$note])* $Variant $(= $value)?,)+
        }

        impl $Enum {
            /// Values by their names.
            $vis const NAMES: &[(&str, Self)] = &[$(($name, Self::$Variant)),+];
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $Enum:ident {
            $($(#[$note:meta])* $Variant:ident $(($value:literal))? = $name:literal),+ $(,)?
        }
        $(#[$about:meta])*
        fn $function:ident;
    ) => {
        $crate::named_enum! {
            $(#[$meta])*
            $vis enum $Enum { $($(#[$note])* $Variant $(($value))? = $name),+ }
        }

        impl $Enum {
            $(#[$about])*
            $vis const fn $function(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }
    };
}
