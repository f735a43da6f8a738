//! Maps HTTP/2 weights (RFC 7540 §5.3) to the urgencies that Chromium expresses by them. Chromium has one weight for
//! each urgency, and makes each stream the exclusive dependency of another. It sends the weight with a request and, to
//! change it later, in a PRIORITY frame, whether or not the server sends SETTINGS_NO_RFC7540_PRIORITIES.

/// The weight of each urgency.
const WEIGHTS: [u16; 8] = [256, 220, 183, 147, 110, 74, 37, 1];
/// The bit of an exclusive dependency.
const EXCLUSIVE: u8 = 0x80;

/// Returns the urgency that the dependency and weight of a PRIORITY frame express. `None` for those of other clients,
/// whose weights have a meaning only beside those of other streams.
pub fn urgency_from_weight(dependency_and_weight: [u8; 5]) -> Option<u8> {
    let [dependency, .., weight] = dependency_and_weight;
    if dependency & EXCLUSIVE == 0 {
        return None;
    }
    let weight = u16::from(weight) + 1;
    (0..).zip(WEIGHTS).find_map(|(urgency, known)| (known == weight).then_some(urgency))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_weights_of_exclusive_dependencies_are_urgencies() {
        for (weight, expected) in
            [(255, Some(0)), (219, Some(1)), (146, Some(3)), (0, Some(7)), (15, None), (200, None)]
        {
            assert_eq!(urgency_from_weight([0x80, 0, 0, 11, weight]), expected, "{weight}");
            assert_eq!(urgency_from_weight([0, 0, 0, 11, weight]), None);
        }
    }
}
