//! The code that a process has mapped, as far as it is known, and which of it samples hit.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use widelane_threads::{Identity, Mapping};

use super::image::{FileCode, Function, base};
use super::verdict::{Has, Ran};
use crate::interval::{Sample, Sampled, Use};

/// A mapping, and which file is behind it.
pub(super) struct Part {
    pub(super) mapping: Mapping,
    /// `None` if the file is out of reach.
    pub(super) identity: Option<Identity>,
}

/// The code of a process.
#[derive(Default)]
pub(super) struct Code {
    pub(super) files: BTreeMap<PathBuf, Arc<FileCode>>,
    /// True if there is code without a file.
    pub(super) generated: bool,
    /// Reason why not all of the code is known.
    pub(super) unseen: Option<&'static str>,
}

impl Code {
    /// Sorts samples by what they hit, into their threads, and says what was hit.
    pub(super) fn sort<'a>(
        &self,
        samples: impl Iterator<Item = &'a Sample>,
        mappings: &[Part],
        threads: &mut [&mut Use],
    ) -> Ran {
        let mut hits: HashMap<String, u64> = HashMap::new();
        let mut all = Sampled::default();
        for sample in samples {
            let count = sample.count;
            let (mut wide, mut copies, mut other) = (0, 0, 0);
            match self.function(sample.address, mappings) {
                Some((_, function)) if function.copies => copies = count,
                Some((path, function)) => {
                    wide = count;
                    let title = format!("{} in {}", function.title, base(path));
                    *hits.entry(title).or_default() += count;
                }
                None => other = count,
            }
            all.wide += wide;
            all.copies += copies;
            all.other += other;
            let owner = threads.iter_mut().find(|r#use| r#use.thread == sample.thread);
            if let Some(r#use) = owner {
                let sampled = r#use.sampled.get_or_insert_default();
                sampled.wide += wide;
                sampled.copies += copies;
                sampled.other += other;
            }
        }
        let most = hits.into_iter().max_by_key(|(_, count)| *count);
        Ran {
            all,
            most: most.map(|(title, _)| title),
        }
    }

    fn function(&self, address: u64, mappings: &[Part]) -> Option<(&Path, &Function)> {
        let hit = |part: &&Part| part.mapping.range.contains(&address);
        let mapping = &mappings.iter().find(hit)?.mapping;
        let (path, known) = self.files.get_key_value(mapping.path.as_ref()?)?;
        let FileCode::Code(wide) = &**known else {
            return None;
        };
        let offset = mapping.offset.checked_add(address - mapping.range.start)?;
        Some((path, wide.at(offset)?))
    }

    pub(super) fn summary(&self) -> Has {
        let mut has = Has {
            generated: self.generated,
            unseen: self.unseen,
            ..Has::default()
        };
        let mut most = 0;
        for (path, known) in &self.files {
            let FileCode::Code(wide) = &**known else {
                continue;
            };
            let copies = wide.functions.iter().filter(|f| f.copies).count();
            let others = wide.functions.len() - copies;
            has.copies |= copies > 0;
            if others > most {
                most = others;
                let name = base(path);
                has.others = Some(format!("{name} has {others} functions of 512 bits"));
            }
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::image::Wide;
    use std::time::Duration;
    use widelane_threads::Thread;

    #[test]
    fn samples_are_sorted_by_the_function_that_they_hit() {
        let function = |address, title: &str, copies| Function {
            address,
            size: 0x100,
            title: title.to_owned(),
            copies,
        };
        let wide = Wide {
            functions: vec![function(0x2000, "f", false), function(0x2100, "memcpy", true)],
            segments: vec![(0, 0x500, 0), (0x1000, 0x2000, 0x2000)],
        };
        let mut code = Code::default();
        code.files
            .insert(PathBuf::from("/lib/libx"), Arc::new(FileCode::Code(wide)));
        let mapping = Mapping {
            range: 0x7000_0000..0x7000_2000,
            offset: 0x1000,
            path: Some(PathBuf::from("/lib/libx")),
        };
        let mappings = [Part {
            mapping,
            identity: None,
        }];
        let thread = Thread { pid: 1, tid: 2 };
        let mut r#use = Use {
            thread,
            name: String::new(),
            process: String::new(),
            cgroup: None,
            cpu: None,
            live: [Duration::ZERO; 4],
            sampled: None,
        };
        let hits = [
            (0x7000_0010, 4),
            (0x7000_00ff, 1),
            (0x7000_0100, 2),
            (0x7000_0200, 3),
            (0x6fff_ffff, 5),
        ];
        let samples = hits.map(|(address, count)| Sample { thread, address, count });
        let ran = code.sort(samples.iter(), &mappings, &mut [&mut r#use]);
        let expected = Sampled {
            wide: 5,
            copies: 2,
            other: 8,
        };
        assert_eq!(ran.all, expected);
        assert_eq!(ran.most.as_deref(), Some("f in libx"));
        assert_eq!(r#use.sampled, Some(expected));
    }
}
