//! Enumerations whose variants are labels of metrics.

/// Defines an enumeration by its variants and the label of each, with `ALL` and `label`.
macro_rules! labelled {
    (
        $(#[$meta:meta])*
        pub(crate) enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $label:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            pub(crate) const ALL: [Self; [$($label),*].len()] = [$(Self::$variant),*];

            pub(crate) fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)*
                }
            }
        }
    };
}

pub(crate) use labelled;
