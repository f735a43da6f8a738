//! How far a congestion control behaves as another one: the mathematics of *Containing the Cambrian Explosion in QUIC
//! Congestion Control* (IMC 2023, §3), over points of delay and throughput. Pure, and the same for the same seed.

mod cluster;
mod envelope;
mod hull;

pub(crate) use self::{
    envelope::{Conformance, Envelope},
    hull::{Point, Polygon},
};
