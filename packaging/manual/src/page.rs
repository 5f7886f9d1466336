//! Manual pages: what `clap_mangen` makes, but the text behind the options keeps its lines.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, roman};
use std::io;

/// The page of a program, those of its sub-commands and of theirs, with the names of their files.
pub(crate) fn all(program: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let version = program.get_version().unwrap_or_default();
    let source = format!("{} {version}", program.get_name());
    let mut pages = Vec::new();
    let mut left = vec![(&program, None)];
    while let Some((command, of)) = left.pop() {
        pages.push(page(command, of, &source)?);
        let parts = command.get_subcommands();
        // clap adds `help` to commands that have parts.
        let parts = parts.filter(|part| part.get_name() != "help");
        left.extend(parts.map(|part| (part, Some(command))));
    }
    Ok(pages)
}

/// The page of a command, which may be part of another.
fn page(command: &Command, of: Option<&Command>, source: &str) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone()).source(source);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_help() {
        behind(&after.to_string()).to_writer(&mut text)?;
    }
    if let Some(whole) = of {
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"]);
        let name = whole.get_display_name().unwrap_or(whole.get_name());
        roff.text([roman(format!("{name}(1)"))]);
        roff.to_writer(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// The text behind the options in sections: examples keep their lines, the exit status has a section
/// of its own, what else there is are notes.
fn behind(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut notes = Vec::new();
    for paragraph in text.split("\n\n") {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        if first.trim() == "Examples:" {
            roff.control("SH", ["EXAMPLES"]);
            roff.control("nf", []);
            for line in rest.lines() {
                let line = line.strip_prefix("  ").unwrap_or(line);
                roff.text([roman(line)]);
            }
            roff.control("fi", []);
            continue;
        }
        let lines: Vec<_> = paragraph.lines().collect();
        let status = lines.iter().position(|line| line.starts_with(STATUS));
        let (before, status) = lines.split_at(status.unwrap_or(lines.len()));
        if !before.is_empty() {
            notes.push(before.join("\n"));
        }
        if !status.is_empty() {
            let status = status.join("\n");
            roff.control("SH", ["EXIT STATUS"]);
            roff.text([roman(status.trim_start_matches(STATUS).trim())]);
        }
    }
    for (number, note) in notes.iter().enumerate() {
        match number {
            0 => roff.control("SH", ["NOTES"]),
            _ => roff.control("PP", []),
        };
        // Lines that begin with a space are a table: they keep their form.
        for line in note.lines() {
            let text: Vec<Inline> = vec![roman(line.trim())];
            if line.starts_with(' ') {
                roff.control("br", []);
            }
            roff.text(text);
        }
    }
    roff
}

const STATUS: &str = "Exit status:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines_and_the_exit_status_is_found() {
        let after = "Examples:\n  a --b\n      what it does\n  .c\n\nThe files: /x,\nand /y.\n\
                     Exit status: 0 it worked,\n1 it did not.";
        let text = behind(after).render();
        for part in [
            ".SH EXAMPLES\n.nf\na \\-\\-b\n    what it does\n\\&.c\n.fi\n",
            ".SH \"EXIT STATUS\"\n0 it worked,\n1 it did not.\n",
            ".SH NOTES\nThe files: /x,\nand /y.\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_page_has_the_options_and_names_its_program() {
        let pages = all(widelane_program::command()).expect("in memory");
        let find = |wanted: &str| {
            let page = pages.iter().find(|(name, _)| name == wanted);
            String::from_utf8(page.expect(wanted).1.clone()).expect("text")
        };
        let setup = find("widelane-setup.1");
        for part in [
            ".TH widelane-setup 1",
            "widelane\\-setup \\- Let nginx",
            "\\-\\-operations",
            "sudo widelane setup nginx",
            "widelane(1)",
        ] {
            assert!(setup.contains(part), "{part}\n{setup}");
        }
        assert!(find("widelane.1").contains("widelane\\-setup(1)"));
        assert!(find("widelane-status.1").contains(".SH \"EXIT STATUS\"\n0 found"));
    }
}
