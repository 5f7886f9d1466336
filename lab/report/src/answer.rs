//! The first screen: does this machine have the problem, what would Widelane do here, what is it
//! worth?

use crate::Inputs;
use crate::block::{Block, Tile};
use crate::handshakes::{ECDSA, RSA, gain, gain_of_nginx};
use crate::order::{Proximity, RecordList};
use crate::profile::{of_scalar, tail};
use std::rc::Rc;
use widelane_cpu::Lanes;
use widelane_frequency::{Penalty, Profile, Subject, advise};
use widelane_samples::{Figure, MODIFIED, Piece, Source, cell};

/// The section's blocks.
pub(crate) fn blocks(profile: Option<(&Profile, &Rc<Source>)>, inputs: &Inputs, list: &RecordList<'_>) -> Vec<Block> {
    let mut tiles = Vec::new();
    let mut blocks = vec![
        Block::Text(cell(PROBLEM)),
        Block::Text(penalty(profile, inputs, &mut tiles)),
        Block::Text(placement(profile, inputs.lanes)),
    ];
    blocks.extend(worth(list, inputs.lanes.exist(), &mut tiles).map(Block::Text));
    blocks.push(Block::Tiles(tiles));
    blocks
}

/// States whether wide code costs clock here.
fn penalty(profile: Option<(&Profile, &Rc<Source>)>, inputs: &Inputs, tiles: &mut Vec<Tile>) -> Vec<Piece> {
    let machine = &inputs.machine;
    let Some((profile, source)) = profile else {
        let (answer, published) = match inputs.licences {
            Some(true) => (
                "Probably. ",
                "By what is published, processors of this generation lower their clock for wide code. ",
            ),
            Some(false) => (
                "Probably not. ",
                "By what is published, wide code lowers the clock of processors of this generation only \
                 at their limit of power. ",
            ),
            None => (
                "Not known yet. ",
                "No source says what wide code costs on processors of this generation. ",
            ),
        };
        return vec![
            Piece::Strong(answer.to_owned()),
            format!("{published}What it costs here ({machine}) was not measured. ").into(),
            "It takes twenty seconds: ".into(),
            Piece::Code("widelane probe && widelane-lab report".to_owned()),
        ];
    };
    let lowest = |wanted: &dyn Fn(&str, usize) -> bool| {
        let clocks = profile.clocks.iter().enumerate();
        let wide = clocks.filter(|(_, clock)| clock.class != "scalar");
        let fitting = wide.filter(|(_, clock)| wanted(&clock.class, clock.cores));
        let lowest = fitting.min_by(|(_, one), (_, other)| one.of_scalar.value.total_cmp(&other.of_scalar.value));
        lowest.map(|(index, _)| index)
    };
    let found = match profile.penalty() {
        Penalty::None { .. } => lowest(&|_, _| true).map(|index| (false, index)),
        Penalty::Some(depths) => depths
            .first()
            .and_then(|deepest| lowest(&|class, cores| class == deepest.class && cores == deepest.cores))
            .map(|index| (true, index)),
        Penalty::Unknown => None,
    };
    let figure =
        found.and_then(|(costs, index)| Some((costs, &profile.clocks[index], of_scalar(profile, index, source)?)));
    let Some((costs, clock, figure)) = figure else {
        return vec![
            Piece::Strong("Not known. ".to_owned()),
            format!("The profile of {machine} has no wide code in it.").into(),
        ];
    };
    tiles.push(Tile {
        title: format!("of the clock of scalar code, with {}", described(&clock.class)),
        figure: figure.clone(),
    });
    let with = format!(
        "with {} ({}) on {}, ",
        described(&clock.class),
        clock.class,
        cores(clock.cores)
    );
    if !costs {
        return vec![
            Piece::Strong("No. ".to_owned()),
            "Wide code does not lower the clock here by more than noise: ".into(),
            with.into(),
            "where it is lowest, the clock is at ".into(),
            figure.into(),
            format!(" of that of scalar code{}.", reservations(source)).into(),
        ];
    }
    let mut pieces = vec![
        Piece::Strong("Yes. ".to_owned()),
        "Wide code lowers the clock here: ".into(),
        with.into(),
        "it falls to ".into(),
        figure.into(),
        " of that of scalar code".into(),
    ];
    if let Some(tail) = tail(profile, &clock.class, source) {
        tiles.push(Tile {
            title: format!("until the clock is back after a burst of {}", described(&clock.class)),
            figure: tail.clone(),
        });
        pieces.push(", and stays low for ".into());
        pieces.push(tail.into());
        pieces.push(" after a burst".into());
    }
    pieces.push(format!("{}.", reservations(source)).into());
    pieces
}

/// Question of the report.
const PROBLEM: &str = "Wide vector code (AVX2, AVX-512) can lower the clock of a core. Then everything that runs \
                       there is slower, ordinary (scalar) code too, and for a while afterwards.";

/// Placement of wide code by Widelane here.
fn placement(profile: Option<(&Profile, &Rc<Source>)>, lanes: Lanes) -> Vec<Piece> {
    let Some(&widest) = lanes.widths().first() else {
        let here = lanes.sentence();
        return vec![format!("{here} Widelane works here, through AWS-LC, and gains nothing.").into()];
    };
    let Some((profile, _)) = profile else {
        return vec![
            format!(
                "Until it is measured, Widelane takes wide code for free: it computes handshakes in \
                 {widest}-bit registers, on the server's own threads."
            )
            .into(),
        ];
    };
    let advice = advise(Subject::Measured(profile), lanes);
    let place = match advice.placement.name() {
        "vector-cores" => "on cores of their own, so that the scalar code beside them keeps its clock",
        _ => "on the server's own threads",
    };
    let text = format!(
        "Widelane would compute handshakes in {}-bit registers, {place}.",
        advice.heavy_width.unwrap_or(widest)
    );
    vec![text.into()]
}

/// Gain by that placement, by the nearest record.
fn worth(list: &RecordList<'_>, lanes: bool, tiles: &mut Vec<Tile>) -> Option<Vec<Piece>> {
    let of = |condition| list.nearest(|record, source| gain(record, source, condition));
    let (rsa, ecdsa) = (of(RSA), of(ECDSA));
    let nginx = list.nearest(gain_of_nginx);
    for (found, title) in [
        (&rsa, "times as many full RSA-2048 handshakes as nginx with OpenSSL"),
        (
            &ecdsa,
            "times as many full ECDSA P-256 handshakes as nginx with OpenSSL",
        ),
        (
            &nginx,
            "times as many full RSA-2048 handshakes of nginx with Widelane in its OpenSSL",
        ),
    ] {
        if let Some((figure, near)) = found {
            tiles.push(Tile {
                title: format!("{title}{}", marked(*near, lanes, figure)),
                figure: figure.clone(),
            });
        }
    }
    let (rsa, near) = rsa?;
    let place = match (near, lanes) {
        (Proximity::Same, true) => "On a CPU of this name".to_owned(),
        (_, true) => format!("On {}, the nearest CPU with a record", rsa.source.machine),
        (_, false) => format!("On a CPU that has them ({})", rsa.source.machine),
    };
    let mut pieces = vec![
        format!("{place}, one core completes ").into(),
        rsa.into(),
        " times as many full RSA-2048 handshakes as nginx with OpenSSL".into(),
    ];
    if let Some((ecdsa, _)) = ecdsa.filter(|(_, at)| *at == near) {
        pieces.push(", and ".into());
        pieces.push(ecdsa.into());
        pieces.push(" times with ECDSA P-256".into());
    }
    pieces.push(".".into());
    Some(pieces)
}

/// Notes that readers need to judge the measurements. The table names the program's sources.
fn reservations(source: &Source) -> String {
    let notes = source.notes.iter().map(|note| &note[..]);
    let notes: Vec<_> = notes.filter(|note| *note != MODIFIED).collect();
    match notes.is_empty() {
        true => String::new(),
        false => format!(" ({})", notes.join(", ")),
    }
}

/// A mark for a figure of another machine: one of the same name may have what this one has not.
fn marked(near: Proximity, lanes: bool, figure: &Figure) -> String {
    match (near, lanes) {
        (Proximity::Same, true) => String::new(),
        _ => format!(" (on another CPU: {})", figure.source.machine),
    }
}

/// A class as words.
fn described(class: &str) -> String {
    match class {
        "256-light" => "light 256-bit code".to_owned(),
        "256-heavy" => "256-bit multiplications".to_owned(),
        "512-light" => "light 512-bit code".to_owned(),
        "512-heavy" => "512-bit multiplications".to_owned(),
        other => format!("{other} code"),
    }
}

fn cores(count: usize) -> String {
    match count {
        1 => "one active core".to_owned(),
        count => format!("{count} active cores"),
    }
}
