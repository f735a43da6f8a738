//! Tries the rows of a table.

use super::row::{Answer, Attempt, Row};
use crate::support::{
    prelude::*,
    raw::{headers, pseudo},
    wire::{Close, Hello, Level, Sent, Wire, stream},
};
use futures_util::{StreamExt, stream::iter};
use tokio::time::Instant;

/// Rows that are tried at once.
const AT_ONCE: usize = 8;
/// litequic's control stream.
const CONTROL: u64 = 3;
/// The request stream on which it shows that it has read what came before,
const PAUSE: u64 = 4;
/// and the one on which the connection shows that it goes on. Rows use stream 0.
const PROBE: u64 = 8;

/// Tries all rows of a table; fails with those that were answered otherwise than they say.
pub(super) async fn all(rows: Vec<Row>) {
    let litequic = Litequic::demo(|_| {}).await;
    let count = rows.len();
    let tried = iter(rows).map(async |row| {
        let seen = seen(&litequic, &row).await;
        (row, seen)
    });
    let tried: Vec<(Row, Answer)> = tried.buffer_unordered(AT_ONCE).collect().await;
    let wrong = tried.iter().filter(|(row, seen)| row.awaited() != *seen);
    let wrong: Vec<_> =
        wrong.map(|(row, seen)| format!("{} | {} | {:?} | {seen:?}", row.rule, row.what, row.awaited())).collect();
    assert!(wrong.is_empty(), "{} of {count} rows: rule | what | awaited | seen\n{}", wrong.len(), wrong.join("\n"));
    litequic.stop().await;
}

/// What litequic answers.
async fn seen(litequic: &Litequic, row: &Row) -> Answer {
    let mut hello = Hello::to(litequic);
    if let Attempt::Hello(edit, _) = &row.attempt {
        edit(&mut hello);
    }
    let mut wire = Wire::new(litequic, hello).await;
    if let Attempt::Halfway(packet) = &row.attempt {
        wire.half_a_handshake().await;
        wire.send(std::slice::from_ref(packet)).await;
        if row.awaited() != Answer::Served {
            return end(&mut wire, row).await;
        }
    }
    // The rest of it, or all.
    let began = wire.handshake().await && wire.until(|wire| wire.streams.contains_key(&CONTROL)).await;
    if !began {
        return end(&mut wire, row).await;
    }
    let packets = match &row.attempt {
        Attempt::Halfway(_) => &[],
        Attempt::Hello(_, packets) | Attempt::Confirmed(packets) => &packets[..],
        Attempt::Paused(packets) => {
            let (last, first) = packets.split_last().unwrap();
            wire.send(&[first, &[get(PAUSE)]].concat()).await;
            wire.until(|wire| is_served(wire, PAUSE)).await;
            std::slice::from_ref(last)
        }
    };
    wire.send(&[packets, &[get(PROBE)]].concat()).await;
    end(&mut wire, row).await
}

/// A packet with a request.
fn get(id: u64) -> Sent {
    Sent::new(Level::OneRtt, stream(id, 0, &headers(&pseudo("GET", "/status/204")), true))
}

fn is_served(wire: &Wire, id: u64) -> bool {
    wire.streams.get(&id).is_some_and(|stream| stream.is_finished)
}

/// Waits for what the row awaits.
async fn end(wire: &mut Wire, row: &Row) -> Answer {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(close) = wire.close {
            return match close {
                Close::Transport(code) => Answer::Transport(code),
                Close::Application(code) => Answer::Http3(code),
            };
        }
        let is_served = is_served(wire, PROBE);
        let code = wire.streams.get(&0).and_then(|stream| stream.reset.or(stream.stopped)).map(Answer::Stream);
        // A connection may close after it has answered: what is not awaited is not the end.
        let is_over = Instant::now() > deadline;
        match (row.awaited(), code) {
            (Answer::Stream(_), Some(answer)) if is_served || is_over => return answer,
            (Answer::Served, None) if is_served => return Answer::Served,
            (_, Some(answer)) if is_over => return answer,
            _ if is_over => return if is_served { Answer::Served } else { Answer::Silence },
            _ => wire.receive().await,
        }
    }
}
