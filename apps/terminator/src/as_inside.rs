//! Methods of a trait that an implementation forwards to a field.

/// Implements these methods of a trait by the same ones of a field.
macro_rules! as_inside {
    ($field:tt: $(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {$(
        fn $name(&self, $($argument: $type),*) -> $result {
            self.$field.$name($($argument),*)
        }
    )+};
}

pub(crate) use as_inside;
