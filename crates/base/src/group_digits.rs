//! Formats large numbers for people: in the log and on screens. Pure.

/// Returns `digits`, which may begin with a minus sign, with a comma between thousands.
pub fn group_digits(digits: &str) -> String {
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len() - place;
        if place > 0 && left.is_multiple_of(3) && grouped != "-" {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
