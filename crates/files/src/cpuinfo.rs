//! The text of `/proc/cpuinfo`, proc_cpuinfo(5): a block of lines for each CPU.

/// Lines of the kernel about one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Cpu<'a>(&'a str);

/// The CPUs that the text of `/proc/cpuinfo` describes, in its order.
pub fn cpus(text: &str) -> impl Iterator<Item = Cpu<'_>> {
    let blocks = text.split("\n\n").map(Cpu);
    blocks.filter(|cpu| cpu.value("processor").is_some())
}

impl<'a> Cpu<'a> {
    /// The value of a key, as `model name`. `None` if the key is missing or has no value.
    pub fn value(self, key: &str) -> Option<&'a str> {
        let mut pairs = self.0.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_values() {
        let text = "processor\t: 0\nmodel name\t: A: B\ncpu MHz\t\t: 2100.5\npower management:\n\n\
            processor\t: 3\nmodel name\t: C\n\n";
        let values = |key| -> Vec<_> { cpus(text).map(|cpu| cpu.value(key)).collect() };
        assert_eq!(values("processor"), [Some("0"), Some("3")]);
        assert_eq!(values("model name"), [Some("A: B"), Some("C")]);
        assert_eq!(values("cpu MHz"), [Some("2100.5"), None]);
        assert_eq!(values("power management"), [None, None]);
        for text in ["", "nothing\n", "\n\n:\n\n", "model name: X\n"] {
            assert_eq!(cpus(text).count(), 0, "{text:?}");
        }
        let cut = &text[..20];
        assert_eq!(cpus(cut).count(), 1, "a beginning of the file");
    }
}
