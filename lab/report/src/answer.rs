//! The first screen: does this machine have the problem, what would Widelane do here, what is it
//! worth?

use crate::Inputs;
use crate::block::{Block, Piece, Section, Tile};
use crate::figure::{Figure, Source};
use crate::handshakes::{ECDSA, RSA, gain, gain_of_nginx};
use crate::order::{Near, Shelf};
use crate::profile::{of_scalar, tail};
use std::rc::Rc;
use widelane_frequency::{Penalty, Profile, Subject, advise};

/// The section.
pub(crate) fn section(
    profile: Option<(&Profile, &Rc<Source>)>,
    inputs: &Inputs,
    shelf: &Shelf<'_>,
) -> Section {
    let mut tiles = Vec::new();
    let mut blocks = vec![
        Block::Text(penalty(profile, inputs, &mut tiles)),
        Block::Text(placement(profile, inputs.lanes)),
    ];
    blocks.extend(worth(shelf, inputs.lanes, &mut tiles).map(Block::Text));
    blocks.push(Block::Tiles(tiles));
    Section {
        id: "answer",
        title: "Do I have this problem?",
        blocks,
    }
}

/// Whether wide code costs clock here.
fn penalty(
    profile: Option<(&Profile, &Rc<Source>)>,
    inputs: &Inputs,
    tiles: &mut Vec<Tile>,
) -> Vec<Piece> {
    let machine = &inputs.machine;
    let Some((profile, source)) = profile else {
        let (answer, published) = match inputs.licences {
            Some(true) => (
                "Probably. ",
                "By what is published, processors of this generation lower their clock for wide code. ",
            ),
            Some(false) => (
                "Probably not. ",
                "By what is published, wide code costs no clock on processors of this generation, but by \
                 limits of power. ",
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
            Piece::Code("widelane probe && widelane report".to_owned()),
        ];
    };
    let lowest = |wanted: &dyn Fn(&str, usize) -> bool| {
        let clocks = profile.clocks.iter().enumerate();
        let wide = clocks.filter(|(_, clock)| clock.class != "scalar");
        let fitting = wide.filter(|(_, clock)| wanted(&clock.class, clock.cores));
        let lowest = fitting
            .min_by(|(_, one), (_, other)| one.of_scalar.value.total_cmp(&other.of_scalar.value));
        lowest.map(|(index, _)| index)
    };
    let found = match profile.penalty() {
        Penalty::None { .. } => lowest(&|_, _| true).map(|index| (false, index)),
        Penalty::Some(depths) => depths
            .first()
            .and_then(|deepest| {
                lowest(&|class, cores| class == deepest.class && cores == deepest.cores)
            })
            .map(|index| (true, index)),
        Penalty::Unknown => None,
    };
    let figure = found.and_then(|(costs, index)| {
        Some((
            costs,
            &profile.clocks[index],
            of_scalar(profile, index, source)?,
        ))
    });
    let Some((costs, clock, figure)) = figure else {
        return vec![
            Piece::Strong("Not known. ".to_owned()),
            format!("The profile of {machine} has no wide code in it.").into(),
        ];
    };
    tiles.push(Tile {
        title: format!("clock with {}, of scalar", clock.class),
        figure: figure.clone(),
    });
    let with = format!("with {} code on {}, ", clock.class, cores(clock.cores));
    if !costs {
        return vec![
            Piece::Strong("No. ".to_owned()),
            "Wide code costs no clock here that could be told from noise: ".into(),
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
            title: format!("until the clock is back after {}", clock.class),
            figure: tail.clone(),
        });
        pieces.push(", and stays low for ".into());
        pieces.push(tail.into());
        pieces.push(" after a burst".into());
    }
    pieces.push(format!("{}.", reservations(source)).into());
    pieces
}

/// What Widelane does here.
fn placement(profile: Option<(&Profile, &Rc<Source>)>, lanes: bool) -> Vec<Piece> {
    if !lanes {
        return vec![
            "This CPU has no AVX-512 IFMA: Widelane works here, through AWS-LC, and gains nothing."
                .into(),
        ];
    }
    let Some((profile, _)) = profile else {
        return vec![
            "Until it is measured, Widelane takes wide code for free: it runs its passes in 512-bit \
             registers, on the threads that submit them."
                .into(),
        ];
    };
    let advice = advise(Subject::Measured(profile));
    let place = match advice.placement.name() {
        "vector-cores" => {
            "on cores of their own, so that the scalar code beside them keeps its clock"
        }
        _ => "on the threads that submit them",
    };
    let text = format!(
        "Widelane would run its passes in {}-bit registers, {place}.",
        advice.heavy_width
    );
    vec![text.into()]
}

/// What that is worth, by the nearest record.
fn worth(shelf: &Shelf<'_>, lanes: bool, tiles: &mut Vec<Tile>) -> Option<Vec<Piece>> {
    let of = |condition| shelf.nearest(|record, source| gain(record, source, condition));
    let (rsa, ecdsa) = (of(RSA), of(ECDSA));
    let nginx = shelf.nearest(gain_of_nginx);
    for (found, title) in [
        (&rsa, "full RSA-2048 handshakes, × nginx with OpenSSL"),
        (&ecdsa, "full ECDSA P-256 handshakes, × nginx with OpenSSL"),
        (
            &nginx,
            "nginx itself with Widelane in its OpenSSL, RSA-2048",
        ),
    ] {
        if let Some((figure, near)) = found {
            tiles.push(Tile {
                title: format!("{title}{}", marked(*near, figure)),
                figure: figure.clone(),
            });
        }
    }
    let (rsa, near) = rsa?;
    let place = match (near, lanes) {
        (Near::Same, true) => "On a CPU of this name".to_owned(),
        _ => format!("On {}, the nearest CPU with a record", rsa.source.machine),
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

/// What has to be known to judge figures of a source.
fn reservations(source: &Source) -> String {
    match source.notes.is_empty() {
        true => String::new(),
        false => format!(" ({})", source.notes.join(", ")),
    }
}

/// A mark for a figure of another machine.
fn marked(near: Near, figure: &Figure) -> String {
    match near {
        Near::Same => String::new(),
        Near::Maker | Near::Other => format!(" (on another CPU: {})", figure.source.machine),
    }
}

fn cores(count: usize) -> String {
    match count {
        1 => "one active core".to_owned(),
        count => format!("{count} active cores"),
    }
}
