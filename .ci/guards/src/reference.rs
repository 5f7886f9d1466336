//! docs/configuration.md: every key of the configuration, from the doc comments of its structs.
//!
//! The doc comment of a key says what the key does; then, where the type does not, `Values: ….` says how it is written,
//! and where Rust code does not simply, `Default: ….`. That of a type which is read from a text says behind its first
//! colon how it is written. Files are read by lines, as rustfmt lays them out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A struct, enum, field or variant.
#[derive(Default)]
struct Item {
    name: String,
    doc: String,
    /// All its attributes, each in a line.
    attributes: String,
    /// The type of a field.
    of: String,
    members: Vec<Item>,
}

/// What configuration files are read into.
#[derive(Default)]
struct Types {
    items: BTreeMap<String, Item>,
    /// Defaults in Rust by struct and field.
    defaults: BTreeMap<(String, String), String>,
}

/// The page for the tree at `root`.
pub fn page(root: &Path) -> Result<String, String> {
    let mut types = Types::default();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).map_err(|error| error.to_string())? {
            let path = entry.map_err(|error| error.to_string())?.path();
            types.read(&fs::read_to_string(path).map_err(|error| error.to_string())?);
        }
    }
    types.page()
}

impl Types {
    fn read(&mut self, text: &str) {
        let mut item = Item::default();
        let mut owner = String::new();
        for line in text.lines() {
            let text = line.trim();
            if let Some(doc) = text.strip_prefix("///") {
                item.doc += &format!("{}\n", doc.strip_prefix(' ').unwrap_or(doc));
                continue;
            } else if text.starts_with("#[") {
                item.attributes += &format!("{text}\n");
                continue;
            }
            let mut item = std::mem::take(&mut item);
            item.doc.truncate(item.doc.trim_end().len());
            if let Some(name) = BEGINS.iter().find_map(|begin| line.strip_prefix(begin)) {
                owner = name.split([' ', '(']).next().unwrap_or(name).into();
                if item.attributes.contains("Deserialize") {
                    self.items.insert(owner.clone(), item);
                }
            } else if line == "}" {
                owner.clear();
            } else if let Some(member) = text.strip_suffix(',') {
                let (name, of) = member.split_once(": ").unwrap_or((member, ""));
                let name = name.trim_start_matches("pub ");
                (item.name, item.of) = (name.into(), of.into());
                if line.starts_with(VALUE_INDENT) {
                    self.defaults.insert((owner.clone(), name.into()), of.into());
                } else if let Some(owner) = self.items.get_mut(&owner)
                    && !item.has("skip")
                {
                    owner.members.push(item);
                }
            }
        }
    }

    fn page(&self) -> Result<String, String> {
        let mut sections = Vec::new();
        self.find("Config", String::new(), &mut sections);
        let mut page = HEAD.to_owned();
        for (name, paths) in sections {
            let item = self.items.get(name).ok_or(format!("{name} is gone"))?;
            if name != "Config" {
                page += &format!("\n## `{}`\n", paths.join("` and `"));
            }
            page += &format!("\n{}\n\n{TABLE}", item.doc);
            for field in &item.members {
                if self.section(field).is_none() {
                    let row = self.row(item, field, name);
                    page += &row.map_err(|fault| format!("{name}.{}: {fault}", field.name))?;
                }
            }
        }
        Ok(page)
    }

    /// Adds a struct and those inside it, each once, with the headers of their sections.
    fn find<'a>(&'a self, name: &'a str, path: String, sections: &mut Vec<(&'a str, Vec<String>)>) {
        let inside = path.trim_matches(['[', ']']).to_owned();
        if let Some((_, known)) = sections.iter_mut().find(|(known, _)| *known == name) {
            return known.push(path);
        }
        sections.push((name, vec![path]));
        let fields = self.items.get(name).into_iter();
        for field in fields.flat_map(|item| &item.members) {
            let Some(inner) = self.section(field) else {
                continue;
            };
            let header = format!("{inside}.{}", field.key());
            let header = header.trim_start_matches('.');
            let header = match field.of.starts_with("Vec<") {
                true => format!("[[{header}]]"),
                false => format!("[{header}]"),
            };
            self.find(inner, header, sections);
        }
    }

    /// The struct that a field holds, which has a section of its own.
    fn section<'a>(&'a self, field: &'a Item) -> Option<&'a str> {
        let name = inner(&field.of);
        let mut members = self.items.get(name)?.members.iter();
        members.any(|member| !member.of.is_empty()).then_some(name)
    }

    fn row(&self, item: &Item, field: &Item, name: &str) -> Result<String, String> {
        let doc = field.doc.replace('\n', " ").replace('|', "\\|");
        let (doc, default) = doc.split_once("Default: ").unwrap_or((&doc, ""));
        let (doc, values) = doc.split_once("Values: ").unwrap_or((doc, ""));
        let mut doc = doc.trim().to_owned();
        let is_list = field.of.starts_with("Vec<");
        let of = inner(&field.of);
        let kind = self.items.get(of);
        let one = match (of, kind) {
            _ if !values.is_empty() => values.trim().trim_end_matches('.').into(),
            ("PathBuf", _) => "a path".into(),
            ("String", _) => "a text".into(),
            ("bool", _) => "`true`, `false`".into(),
            ("u8" | "u32" | "usize" | "NonZeroUsize", _) => "a number".into(),
            ("Duration", _) => "seconds".into(),
            ("SocketAddr", _) => "`ADDR:PORT`".into(),
            (_, Some(kind)) if kind.attributes.contains("try_from") => {
                let (_, written) = kind.doc.split_once(": ").ok_or(SAY_VALUES)?;
                written.trim_end_matches('.').replace('\n', " ")
            }
            (_, Some(kind)) => {
                for value in kind.members.iter().filter(|value| value.doc.ends_with('.')) {
                    doc += &format!(" `{}`: {}", value.key(), value.doc);
                }
                let names = kind.members.iter().map(|value| value.key());
                format!("`{}`", Vec::from_iter(names).join("`, `"))
            }
            (_, None) => return Err(SAY_VALUES.into()),
        };
        let is_several = SEVERAL.iter().any(|by| field.attributes.contains(by));
        let values = match is_list {
            true if is_several => format!("{one}; or a list"),
            true => format!("a list, each {one}"),
            false => one,
        };
        let in_rust = self.defaults.get(&(name.into(), field.name.clone()));
        let in_rust = in_rust.map_or("", |text| text.trim_end_matches(')'));
        let in_rust = in_rust.trim_start_matches("Duration::from_secs(");
        let is_plain = in_rust.parse::<u64>().is_ok() || in_rust.parse::<bool>().is_ok();
        let is_empty = ["", "Vec::new("].contains(&in_rust) && !field.has("default =");
        let variants = kind.map_or(&[][..], |kind| &kind.members);
        let variant = variants.iter().find(|value| value.has("default"));
        let default = match variant {
            _ if !default.is_empty() => default.trim().trim_end_matches('.').into(),
            _ if is_plain => format!("`{in_rust}`"),
            _ if field.of.starts_with("Option<") => "none".into(),
            _ if !item.has("default") && !field.has("default") => "must be set".into(),
            Some(variant) if !is_list => format!("`{}`", variant.key()),
            _ if is_list && is_empty => "`[]`".into(),
            _ if of == "bool" && is_empty => "`false`".into(),
            _ => return Err(SAY_DEFAULT.into()),
        };
        Ok(format!("| `{}` | {values} | {default} | {doc} |\n", field.key()))
    }
}

impl Item {
    fn has(&self, word: &str) -> bool {
        self.attributes
            .split(&['[', '(', ')', ']', ','][..])
            .any(|one| one.trim().starts_with(word))
    }

    /// What it is called in the file.
    fn key(&self) -> String {
        let renamed = self.attributes.split_once("rename = \"");
        let renamed = renamed.and_then(|(_, name)| name.split('"').next());
        renamed.unwrap_or(&self.name).to_lowercase()
    }
}

/// The type in a list or an option.
fn inner(of: &str) -> &str {
    let inner = of.strip_prefix("Vec<").or(of.strip_prefix("Option<"));
    inner.unwrap_or(of).trim_end_matches('>')
}

const BEGINS: [&str; 3] = ["pub struct ", "pub enum ", "impl Default for "];
/// Of the values in `fn default`.
const VALUE_INDENT: &str = "            ";
/// Functions that read one value or a list.
const SEVERAL: [&str; 3] = ["\"one_or_several\"", "\"paths\"", "\"texts\""];
const SAY_VALUES: &str = "write `Values: ….` into its doc comment";
const SAY_DEFAULT: &str = "write `Default: ….` into its doc comment";
const TABLE: &str = "| key | values | default | |\n| --- | --- | --- | --- |\n";
/// Keys, and types of values that belong to crates of their own.
const FOLDERS: [&str; 2] = ["apps/terminator/src/config", "crates/access-log/src"];
const HEAD: &str = "\
# The configuration file of `widelane serve`

<!-- Made from doc comments in apps/terminator/src/config: WRITE=1 cargo test -p widelane-guards --lib reference -->

A TOML file, which `--config` names. [serve.md](serve.md) is the guide, [packaging/widelane.toml](../packaging/widelane.toml)
an example with every key. A key that is not known is a fault, and so is one that must be set and is not. All
values but numbers, `true` and `false` are in quotes: `kind = \"http\"`. Seconds are whole or fractional, from 0.001 to
31536000 (a year). A change of a key or section that says *Restart* needs one; of all others a
[reload](running.md#reload).
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_of_the_configuration_is_that_of_its_doc_comments() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("two levels up");
        let made = page(root).expect("each key has what the page needs");
        let file = root.join("docs/configuration.md");
        if std::env::var_os("WRITE").is_some() {
            fs::write(&file, &made).expect("writable");
        }
        let page = fs::read_to_string(&file).unwrap_or_default();
        let remedy = "WRITE=1 cargo test -p widelane-guards --lib reference";
        assert!(page == made, "docs/configuration.md is old; write it by: {remedy}");
    }

    #[test]
    fn a_key_says_how_it_is_written_and_its_default() {
        let made = |text: &str| {
            let mut types = Types::default();
            types.read(text);
            types.page()
        };
        let text = "
/// All.
#[derive(Deserialize)]
#[serde(default)]
pub struct Config {
    /// Says a|b.
    /// More. Default: much.
    #[serde(rename = \"a\")]
    pub x: Option<u32>,
    /// How long.
    pub time: Duration,
    /// Which.
    pub kinds: Vec<Kind>,
    pub inner: Vec<Inner>,
}
impl Default for Config {
    fn default() -> Self {
        Self {
            x: None,
            time: Duration::from_secs(5),
            kinds: Vec::new(),
            inner: Vec::new(),
        }
    }
}
#[derive(Deserialize)]
#[serde(rename_all = \"lowercase\")]
pub enum Kind {
    /// Good.
    #[serde(rename = \"ml-dsa\")]
    MlDsa,
    Rsa,
}
/// One.
#[derive(Deserialize)]
pub struct Inner {
    /// Where.
    /// Values: a name.
    pub to: Place,
}
";
        let page = made(text).expect("all is said");
        let (_, tables) = page.split_once("\nAll.\n").expect("the struct");
        let expected = "\n\
            | key | values | default | |\n| --- | --- | --- | --- |\n\
            | `a` | a number | much | Says a\\|b. More. |\n\
            | `time` | seconds | `5` | How long. |\n\
            | `kinds` | a list, each `ml-dsa`, `rsa` | `[]` | Which. `ml-dsa`: Good. |\n\n\
            ## `[[inner]]`\n\nOne.\n\n\
            | key | values | default | |\n| --- | --- | --- | --- |\n\
            | `to` | a name | must be set | Where. |\n";
        assert_eq!(tables, expected);
        let fault = made(&text.replace("Values: ", "")).expect_err("no values");
        assert_eq!(fault, "Inner.to: write `Values: ….` into its doc comment");
        let fault = made(&text.replace("kinds: Vec::new()", "kinds: usual()")).expect_err("no default");
        assert_eq!(fault, "Config.kinds: write `Default: ….` into its doc comment");
    }
}
