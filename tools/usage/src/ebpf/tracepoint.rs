//! The records of tracepoints, as tracefs describes them.

/// Place of a field in the record of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Bytes before it.
    pub(super) offset: u16,
    /// Length of the field in bytes.
    pub(super) size: u16,
}

/// Finds a field in the `format` of a tracepoint.
pub(super) fn field(format: &str, name: &str) -> Option<Field> {
    let mut parts = format.lines().filter_map(|line| {
        // field:TYPE NAME; offset:N; size:N; signed:N;
        let mut parts = line.trim().split(';').map(str::trim);
        let declaration = parts.next()?.strip_prefix("field:")?;
        let declared = declaration.rsplit([' ', '*']).next()? == name;
        declared.then_some(parts)
    });
    let mut parts = parts.next()?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some(Field { offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_tracepoints_are_found_by_name() {
        let format = "\
name: x86_fpu_regs_deactivated\n\
ID: 180\n\
format:\n\
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
\n\
\tfield:struct fpu * fpu;\toffset:8;\tsize:8;\tsigned:0;\n\
\tfield:u64 xfeatures;\toffset:24;\tsize:8;\tsigned:0;\n\
\n\
print fmt: \"x86/fpu: %p\", REC->fpu\n";
        let field = |name| super::field(format, name);
        assert_eq!(
            field("xfeatures"),
            Some(Field {
                offset: 24,
                size: 8
            })
        );
        assert_eq!(field("fpu"), Some(Field { offset: 8, size: 8 }));
        assert_eq!(field("features"), None);
        assert_eq!(
            super::field("\tfield:u64 xfeatures;\toffset:-1;", "xfeatures"),
            None
        );
    }
}
