//! Objects that commands print as JSON.

/// Makes an object of these fields, in their order: a structure that is written down where it is filled. A field
/// without a value takes the variable of its name.
macro_rules! object {
    ($($(#[$attribute:meta])* $field:ident $(: $value:expr)?),* $(,)?) => {{
        #[allow(non_camel_case_types, reason = "the type of each field has the field's name")]
        let made = {
            #[derive(serde::Serialize)]
            struct Object<$($field),*> {
                $($(#[$attribute])* $field: $field),*
            }
            Object { $($field $(: $value)?),* }
        };
        made
    }};
}

pub(crate) use object;
