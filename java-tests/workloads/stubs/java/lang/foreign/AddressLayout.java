package java.lang.foreign;

/** See {@link Arena}. */
public interface AddressLayout extends ValueLayout {}
