//! The table of stages, `.ci/stages.toml`.

use std::collections::BTreeMap;
use std::path::Path;

/// All stages, in the order in which they run.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) stages: Vec<Stage>,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) tier: Tier,
    /// One sentence for readers.
    pub(crate) does: String,
    pub(crate) work: Work,
    /// Environment variables of the command, or of the build and the test programs.
    pub(crate) environment: BTreeMap<String, String>,
    /// Commands without which the stage cannot run here.
    pub(crate) needs: Vec<String>,
    /// Folders whose change brings a stage of [`Tier::CheckAll`] into [`Tier::Check`].
    pub(crate) rooms: Vec<String>,
    /// Reasons of skipped tests that do not keep the stage from being remembered as passed.
    pub(crate) may_skip: Vec<String>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Tier {
    Test,
    Check,
    CheckAll,
}

#[derive(Debug)]
pub(crate) enum Work {
    /// Run by bash, in the root of the tree.
    Command(String),
    Tests(Tests),
}

/// Test programs that cargo builds in one go.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    /// Arguments of `cargo test --no-run`.
    pub(crate) arguments: Vec<String>,
    /// The only programs that run. Empty means all.
    pub(crate) programs: Vec<String>,
    /// Programs that other stages run.
    pub(crate) later: Vec<String>,
    /// Tests that other stages run: parts of their names.
    pub(crate) skip: Vec<String>,
    /// The only tests that run: parts of their names. Empty means all.
    pub(crate) only: Vec<String>,
    /// Programs that measure: they run one after the other, beside nothing else.
    pub(crate) alone: Vec<String>,
    /// Leaves out the programs that earlier stages of the same run have run.
    pub(crate) rest: bool,
}

/// What a user asked for.
#[derive(Debug)]
pub(crate) enum Selection {
    Tier(Tier),
    Stages(Vec<String>),
}

impl Tier {
    pub(crate) const ALL: [Tier; 3] = [Tier::Test, Tier::Check, Tier::CheckAll];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Tier::Test => "test",
            Tier::Check => "check",
            Tier::CheckAll => "check-all",
        }
    }
}

impl Table {
    /// The stages that `words` name: one tier, or stages.
    pub(crate) fn select(&self, words: &[String]) -> Result<Selection, String> {
        if let [word] = words
            && let Some(tier) = Tier::ALL.into_iter().find(|tier| tier.name() == word)
        {
            return Ok(Selection::Tier(tier));
        }
        for word in words {
            if !self.stages.iter().any(|stage| stage.name == *word) {
                let names: Vec<&str> = self.stages.iter().map(|stage| &*stage.name).collect();
                return Err(format!(
                    "{word} is neither a tier (test, check, check-all) nor a stage ({})",
                    names.join(", ")
                ));
            }
        }
        Ok(Selection::Stages(words.to_vec()))
    }
}

/// Reads the table of the tree at `root`.
pub(crate) fn read(root: &Path) -> Result<Table, String> {
    let path = root.join(PATH);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{PATH}: {error}"))?;
    let table = parse(&text).map_err(|message| format!("{PATH}: {message}"))?;
    for stage in &table.stages {
        for room in &stage.rooms {
            if !root.join(room).exists() {
                let name = &stage.name;
                return Err(format!("{PATH}: stage {name}: there is no {room}"));
            }
        }
    }
    Ok(table)
}

fn parse(text: &str) -> Result<Table, String> {
    let document: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    let rows = document.get("stage").and_then(toml::Value::as_array);
    let stages = rows
        .ok_or("there is no [[stage]]")?
        .iter()
        .map(|row| stage(row.as_table().ok_or("a stage is a table")?))
        .collect::<Result<Vec<Stage>, String>>()?;
    for (index, one) in stages.iter().enumerate() {
        if stages[..index].iter().any(|other| other.name == one.name) {
            return Err(format!("two stages are called {}", one.name));
        }
    }
    Ok(Table { stages })
}

fn stage(row: &toml::Table) -> Result<Stage, String> {
    let name = word(row, "name")?.ok_or("a stage has no name")?;
    let named = |message: String| format!("stage {name}: {message}");
    if let Some(key) = row.keys().find(|key| !KEYS.contains(&&***key)) {
        return Err(named(format!("unknown key {key}")));
    }
    let tier = word(row, "tier").map_err(named)?.unwrap_or_default();
    let tier = Tier::ALL
        .into_iter()
        .find(|one| one.name() == tier)
        .ok_or_else(|| named("tier is none of test, check, check-all".into()))?;
    let command = word(row, "command").map_err(named)?;
    let arguments = row.contains_key("tests");
    let work = match (command, arguments) {
        (Some(command), false) => Work::Command(command),
        (None, true) => Work::Tests(Tests {
            arguments: words(row, "tests").map_err(named)?,
            programs: words(row, "programs").map_err(named)?,
            later: words(row, "later").map_err(named)?,
            skip: words(row, "skip").map_err(named)?,
            only: words(row, "only").map_err(named)?,
            alone: words(row, "alone").map_err(named)?,
            rest: row.get("rest").and_then(toml::Value::as_bool) == Some(true),
        }),
        _ => return Err(named("give either command or tests".into())),
    };
    let rooms = words(row, "rooms").map_err(named)?;
    if !rooms.is_empty() && tier != Tier::CheckAll {
        return Err(named("only stages of check-all have rooms".into()));
    }
    let environment = row.get("environment").and_then(toml::Value::as_table);
    Ok(Stage {
        tier,
        does: word(row, "does").map_err(named)?.unwrap_or_default(),
        work,
        environment: environment
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        needs: words(row, "needs").map_err(named)?,
        rooms,
        may_skip: words(row, "may-skip").map_err(named)?,
        name,
    })
}

fn word(row: &toml::Table, key: &str) -> Result<Option<String>, String> {
    match row.get(key) {
        None => Ok(None),
        Some(toml::Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{key} is not a string")),
    }
}

/// A list of strings, or one string whose words are the list.
fn words(row: &toml::Table, key: &str) -> Result<Vec<String>, String> {
    match row.get(key) {
        None => Ok(Vec::new()),
        Some(toml::Value::String(text)) => Ok(text.split_whitespace().map(str::to_owned).collect()),
        Some(toml::Value::Array(list)) => list
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("{key} is not a list of strings")),
        Some(_) => Err(format!("{key} is not a list of strings")),
    }
}

const PATH: &str = ".ci/stages.toml";

const KEYS: [&str; 15] = [
    "name",
    "tier",
    "does",
    "command",
    "tests",
    "programs",
    "later",
    "skip",
    "only",
    "alone",
    "rest",
    "environment",
    "needs",
    "rooms",
    "may-skip",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_this_tree_is_right() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let table = read(&root).expect("it can be read");
        assert!(table.stages.iter().all(|stage| !stage.does.is_empty()));
    }

    /// What one stage leaves out, another one runs.
    #[test]
    fn nothing_that_is_left_out_is_dropped() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let table = read(&root).expect("it can be read");
        let all: Vec<&Tests> = table
            .stages
            .iter()
            .filter_map(|stage| match &stage.work {
                Work::Tests(tests) => Some(tests),
                Work::Command(_) => None,
            })
            .collect();
        for name in all.iter().flat_map(|tests| &tests.skip) {
            let runs = all.iter().any(|tests| tests.only.contains(name));
            assert!(runs, "the test {name} is skipped and never run");
        }
        for name in all.iter().flat_map(|tests| &tests.later) {
            let runs = |tests: &&Tests| tests.programs.contains(name) || (tests.rest && !tests.later.contains(name));
            assert!(
                all.iter().any(runs),
                "the program {name} is left for later and never run"
            );
        }
    }

    #[test]
    fn mistakes_in_a_table_are_named() {
        let refused = |text: &str| parse(text).expect_err(text);
        assert_eq!(refused(""), "there is no [[stage]]");
        let row = "[[stage]]\nname = 'a'\ntier = 'check'\n";
        assert_eq!(refused(row), "stage a: give either command or tests");
        assert_eq!(
            refused(&format!("{row}command = 'x'\nroom = 'y'\n")),
            "stage a: unknown key room"
        );
        assert_eq!(
            refused(&format!("{row}command = 'x'\nrooms = 'y'\n")),
            "stage a: only stages of check-all have rooms"
        );
        let twice = format!("{row}command = 'x'\n").repeat(2);
        assert_eq!(refused(&twice), "two stages are called a");
        assert_eq!(
            refused("[[stage]]\nname = 'a'\ntier = 'now'\ncommand = 'x'\n"),
            "stage a: tier is none of test, check, check-all"
        );
    }

    #[test]
    fn unknown_stages_are_refused_with_the_list() {
        let table = parse("[[stage]]\nname = 'a'\ntier = 'check'\ncommand = 'x'\n").expect("right");
        let message = table.select(&["b".into()]).expect_err("there is no b");
        assert!(message.contains("b is neither") && message.contains("(a)"), "{message}");
        assert!(matches!(
            table.select(&["check".into()]),
            Ok(Selection::Tier(Tier::Check))
        ));
    }
}
