/** Generates classes that differ in a number of five digits from a template that is compiled with the number 00000. */
final class GeneratedClass {
    private static final int DIGITS = 5;

    private GeneratedClass() {}

    /** Returns the template with its number replaced; both numbers have five digits, so nothing else changes. */
    static byte[] of(byte[] template, int number) {
        byte[] digits = String.format("%05d", number).getBytes();
        byte[] bytes = template.clone();
        for (int i = 0; i + DIGITS <= bytes.length; i++) {
            boolean zeros = true;
            for (int k = 0; k < DIGITS; k++) {
                zeros &= bytes[i + k] == '0';
            }
            if (zeros) {
                System.arraycopy(digits, 0, bytes, i, DIGITS);
                i += DIGITS - 1;
            }
        }
        return bytes;
    }
}
