//! A page to look at: its inputs, and what is on it.

#![allow(dead_code, reason = "not every test that has this module uses all of it")]

use html5gum::{Token, Tokenizer};
use std::fs;
use std::path::{Path, PathBuf};
use widelane_frequency::Profile;
use widelane_report::{Inputs, records, report};

/// The records of the laboratory and the sample of a profile, for a page in `folder`.
pub(crate) fn inputs(folder: &Path) -> Inputs {
    let (records, faults) = records(&[laboratory()]);
    assert!(faults.is_empty(), "{faults:?}");
    let kept = folder.join("profile.json");
    fs::write(&kept, PROFILE).expect("written");
    Inputs {
        machine: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz".to_owned(),
        lanes: widelane_cpu::Lanes::ALL,
        licences: None,
        profile: Ok((kept, profile())),
        records,
        faults,
        predictions: Vec::new(),
        commit: Some("0123456789ab".to_owned()),
        page: folder.join("page.html"),
        made: 1_763_769_600,
    }
}

/// The sample of a profile.
pub(crate) fn profile() -> Profile {
    Profile::from_json(PROFILE).expect("the sample is a profile")
}

/// The records of the laboratory: names and texts.
pub(crate) fn records_of_the_laboratory() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(laboratory()).expect("records") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        all.push((name, fs::read_to_string(path).expect("a record")));
    }
    all
}

fn laboratory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../records")
}

const PROFILE: &str = include_str!("../../../../tools/frequency/tests/data/profile.json");

/// Contents of a page.
pub(crate) struct Page {
    elements: Vec<Element>,
    /// All text but the style sheet's, with a line for each row of a table.
    pub(crate) text: String,
}

/// An element with its attributes, and the text right inside.
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) text: String,
}

/// The page of these inputs.
pub(crate) fn page_of(inputs: &Inputs) -> Page {
    Page::read(report(inputs).html())
}

impl Page {
    pub(crate) fn read(html: &str) -> Self {
        let mut elements: Vec<Element> = Vec::new();
        let mut text = String::new();
        // True while the element that was opened last is open.
        let mut open = false;
        let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        for Ok(token) in Tokenizer::new(html) {
            match token {
                Token::StartTag(tag) => {
                    let attributes = tag.attributes.iter();
                    let attributes = attributes.map(|(name, value)| (string(name), string(value)));
                    elements.push(Element {
                        name: string(&tag.name),
                        attributes: attributes.collect(),
                        text: String::new(),
                    });
                    text.push(' ');
                    open = true;
                }
                Token::String(more) => {
                    let last = elements.last_mut().expect("text in an element");
                    if open {
                        last.text.push_str(&string(&more));
                    }
                    if !(open && last.name == "style") {
                        text.push_str(&string(&more));
                    }
                }
                Token::EndTag(tag) => {
                    open = false;
                    let block = [&b"tr"[..], b"p", b"li", b"h2", b"h3", b"summary", b"text"];
                    text.push(if block.contains(&&tag.name[..]) { '\n' } else { ' ' });
                }
                Token::Error(error) => panic!("the page is not HTML: {error:?}"),
                Token::Comment(_) | Token::Doctype(_) => {}
            }
        }
        Self { elements, text }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Element> {
        self.elements.iter()
    }

    pub(crate) fn elements<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.all().filter(move |element| element.name == name)
    }
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &value[..])
    }
}
