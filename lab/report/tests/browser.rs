//! The page as a browser shows it: readable on a phone and on a desk, on light and on dark paper.
//!
//! A page of the test's own holds the report in frames of several widths and looks into them. It
//! runs in headless Chromium without network; where there is none, these tests SKIP.

mod common;

use common::inputs;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use widelane_report::{Inputs, report};
use widelane_sim::{BUILTIN, Comparison, Scenario};

#[test]
fn no_width_makes_the_page_scroll_sideways() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let html = page(folder.path());
    for view in browser.views(folder.path(), &html, Paper::Light) {
        let width = view["width"].as_u64().expect("a width");
        assert_eq!(view["scroll"], view["client"], "{width} px: {}", view["wide"]);
        assert_eq!(count(&view, "wide"), 0, "{width} px: {view}");
        // On a desk, tables have room without a scroll bar of their own.
        if width >= DESK {
            assert_eq!(count(&view, "scrolled"), 0, "{width} px: {}", view["scrolled"]);
        }
        assert!(view["tables"].as_u64() > Some(30), "{width} px: {view}");
        // The letters of a table or a picture can be read, and all of them.
        let smallest = view["smallest"].as_f64().expect("a size");
        assert!(smallest >= 9.0, "{width} px: letters of {smallest} px");
        assert_eq!(count(&view, "tangled"), 0, "{width} px: {}", view["tangled"]);
        // The answer is on the first screen.
        let foot = view["answer"].as_f64().expect("the foot of the answer");
        assert!(foot < PHONE_HEIGHT, "{width} px: the answer ends at {foot}");
    }
}

/// The test above would find each of these.
#[test]
fn what_is_too_wide_or_on_top_of_another_is_found() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let html = page(folder.path());
    let text = |x: u32| format!("<text x={x} y=50 font-size=14>planted at {x}</text>");
    let planted = [
        // Wider than a phone, and as a table also wider than a desk.
        "<div class=planted style=\"width:900px\">x</div>".to_owned(),
        "<div class=scroll><table style=\"width:1700px\"><thead><tr><th>planted</table></div>".to_owned(),
        format!(
            "<figure><svg viewBox=\"0 0 360 100\">{}{}{}</svg></figure>",
            text(20),
            text(50),
            text(330)
        ),
    ];
    let html = html.replace("</main>", &(planted.concat() + "</main>"));
    for view in browser.views(folder.path(), &html, Paper::Light) {
        let found = view["scroll"].as_u64() > view["client"].as_u64();
        let named = view["wide"].to_string().contains("planted");
        let narrow = view["width"].as_u64() < Some(900);
        assert_eq!((found, named), (narrow, narrow), "{view}");
        assert!(view["scrolled"].to_string().contains("planted"), "{view}");
        let tangled = view["tangled"].as_array().expect("a list");
        let tangled: Vec<_> = tangled.iter().filter_map(Value::as_str).collect();
        assert_eq!(tangled.len(), 2, "{view}");
        assert!(tangled[0].starts_with("on ") && tangled[1].starts_with("cut"), "{view}");
    }
}

#[test]
fn dark_paper_is_dark_with_light_letters_in_texts_and_pictures() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let html = page(folder.path());
    for (paper, dark) in [(Paper::Light, false), (Paper::Dark, true)] {
        let views = browser.views(folder.path(), &html, paper);
        assert!(!views.is_empty());
        for view in &views {
            assert_eq!(count(view, "faint"), 0, "{paper:?}: {}", view["faint"]);
        }
        for view in views {
            let lightness = |key: &str| lightness(view[key].as_str().expect("a colour"));
            for (paper, letters) in [("paper", "letters"), ("picture", "label")] {
                let (paper, letters) = (lightness(paper), lightness(letters));
                assert_eq!(paper < letters, dark, "{view}");
                assert!((paper - letters).abs() > 500, "{view}");
            }
        }
    }
}

/// The test above would find it.
#[test]
fn faint_letters_are_found() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    // Grey on either paper: too light on one, too dark on the other.
    let planted = "<p style=\"color:#999\">planted</p><p style=\"color:#555\">planted</p></main>";
    let html = page(folder.path()).replace("</main>", planted);
    for paper in [Paper::Light, Paper::Dark] {
        for view in browser.views(folder.path(), &html, paper) {
            let faint = view["faint"].as_array().expect("a list");
            assert_eq!(faint.len(), 1, "{paper:?}: {view}");
        }
    }
}

/// The pictures stay in the target folder, to be looked at.
#[test]
fn pictures_are_taken_on_phone_and_desk_light_and_dark() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    fs::write(&page, self::page(folder.path())).expect("written");
    let shown = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (width, height) in [(390, 844), (1280, 900), (1600, 1000)] {
        let mut pictures = Vec::new();
        for (paper, name) in [(Paper::Light, "light"), (Paper::Dark, "dark")] {
            let file = shown.join(format!("report-{width}-{name}.png"));
            let _ = fs::remove_file(&file);
            let mut wanted = std::ffi::OsString::from("--screenshot=");
            wanted.push(&file);
            let size = format!("--window-size={width},{height}");
            browser.run(folder.path(), paper, [OsStr::new(&size), &wanted], &page);
            let picture = fs::read(&file).expect("a picture");
            assert_eq!(size_of_png(&picture), Some((width, height)), "{}", file.display());
            pictures.push(picture);
        }
        assert_ne!(pictures[0], pictures[1], "light and dark look alike");
    }
}

/// A page with every published number that the simulator knows, which have long names. What it says
/// of them takes minutes and is made up here.
fn page(folder: &Path) -> String {
    let mut predictions = Vec::new();
    for (name, text) in BUILTIN {
        let scenario = Scenario::parse(text).expect("a scenario");
        predictions.extend(
            scenario
                .numbers
                .iter()
                .map(|number| Comparison::of(name, number, number.published * 1.004)),
        );
    }
    let inputs = Inputs {
        predictions,
        ..inputs(folder)
    };
    report(&inputs).html().to_owned()
}

/// Number of things of a kind that were found.
fn count(view: &Value, kind: &str) -> usize {
    view[kind].as_array().expect("a list").len()
}

struct Browser(PathBuf);

#[derive(Clone, Copy, Debug)]
enum Paper {
    Light,
    Dark,
}

impl Browser {
    /// The installed Chromium that can show a page here.
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = std::env::split_paths(&path).collect();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let files = names
            .iter()
            .flat_map(|name| folders.iter().map(move |at| at.join(name)));
        let Some(file) = files.into_iter().find(|file| file.is_file()) else {
            println!("SKIP: chromium is not installed");
            return None;
        };
        let browser = Self(file);
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("page.html");
        fs::write(&page, "<p>alive</p>").expect("written");
        let shown = browser.run(folder.path(), Paper::Light, [OsStr::new("--dump-dom")], &page);
        if !shown.contains("alive") {
            println!("SKIP: {} does not run here", browser.0.display());
            return None;
        }
        Some(browser)
    }

    /// Views of a page of `html` in frames of several widths.
    fn views(&self, folder: &Path, html: &str, paper: Paper) -> Vec<Value> {
        fs::write(folder.join("page.html"), html).expect("written");
        let frames = folder.join("frames.html");
        fs::write(&frames, FRAMES).expect("written");
        // A page of a file may look into another one of a file with this only.
        let flags = [
            "--dump-dom",
            "--allow-file-access-from-files",
            "--window-size=1700,1000",
        ];
        let shown = self.run(folder, paper, flags.map(OsStr::new), &frames);
        let (_, found) = shown.split_once("FOUND").expect("the frames were looked at");
        let (found, _) = found.split_once("END").expect("the frames were looked at");
        let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let views: Vec<Value> = serde_json::from_str(&found).expect("what was found");
        assert_eq!(views.len(), 4, "{found}");
        views
    }

    /// Output of the browser when it shows `page`.
    fn run<'a>(&self, folder: &Path, paper: Paper, flags: impl IntoIterator<Item = &'a OsStr>, page: &Path) -> String {
        let scheme = match paper {
            Paper::Dark => "--blink-settings=preferredColorScheme=0",
            Paper::Light => "--blink-settings=preferredColorScheme=1",
        };
        let mut profile = std::ffi::OsString::from("--user-data-dir=");
        profile.push(folder.join("browser"));
        let mut address = std::ffi::OsString::from("file://");
        address.push(page);
        // The user may be a container's root, and the pages are our own.
        let mut command = Command::new("timeout");
        command
            .arg("120")
            .arg(&self.0)
            .args(["--headless", "--no-sandbox", "--disable-gpu"]);
        command.args([
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            scheme,
        ]);
        command.arg(profile).args(flags).arg(address);
        command.env("HOME", folder);
        let output = command.output().expect("timeout is of coreutils");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Width and height in the header of a PNG file.
fn size_of_png(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    bytes.starts_with(b"\x89PNG").then_some((number(16)?, number(20)?))
}

/// The sum of red, green and blue in `rgb(1, 2, 3)`.
fn lightness(colour: &str) -> i64 {
    let numbers = colour.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse::<i64>().ok()).take(3).sum()
}

/// Height that a phone shows at once, in pixels of its pages.
const PHONE_HEIGHT: f64 = 844.0;
/// The narrowest window of a desk.
const DESK: u64 = 1280;
/// Opens all that can be opened, and says of each width what is too wide and how it looks.
const FRAMES: &str = include_str!("common/frames.html");
