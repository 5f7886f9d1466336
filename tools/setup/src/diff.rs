//! The difference between two texts, for people and for `patch`.

use std::fmt::Write as _;

/// The unified difference between two states of a file, `None` where there is no file. It shows the
/// whole file, as ours are short.
pub(crate) fn unified(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    let name = |side: Option<&str>| match side {
        Some(_) => path.to_owned(),
        None => "/dev/null".to_owned(),
    };
    let lines = |side: Option<&str>| -> Vec<String> { side.unwrap_or_default().lines().map(str::to_owned).collect() };
    let (old, new) = (lines(before), lines(after));
    let range = |lines: &[String]| match lines.len() {
        0 => "0,0".to_owned(),
        count => format!("1,{count}"),
    };
    let mut text = format!("--- {}\n+++ {}\n", name(before), name(after));
    let _ = writeln!(text, "@@ -{} +{} @@", range(&old), range(&new));
    let common = common(&old, &new);
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let (mark, line) = if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
            (' ', &old[i - 1])
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            i += 1;
            ('-', &old[i - 1])
        } else {
            j += 1;
            ('+', &new[j - 1])
        };
        let _ = writeln!(text, "{mark}{line}");
    }
    text
}

/// For each pair of positions, how many lines what follows has in common.
fn common(old: &[String], new: &[String]) -> Vec<Vec<usize>> {
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_changed_and_removed_files() {
        assert_eq!(
            unified("/a", None, Some("x\ny\n")),
            "--- /dev/null\n+++ /a\n@@ -0,0 +1,2 @@\n+x\n+y\n"
        );
        assert_eq!(
            unified("/a", Some("x\n"), None),
            "--- /a\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"
        );
        assert_eq!(
            unified("/a", Some("1\n2\n3\n4\n"), Some("1\n3\n3a\n4\n")),
            "--- /a\n+++ /a\n@@ -1,4 +1,4 @@\n 1\n-2\n 3\n+3a\n 4\n"
        );
    }
}
