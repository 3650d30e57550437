// SPDX-License-Identifier: MIT
/** Makes and deletes so many global, weak and local references in native code: References LIBRARY COUNT. */
public class References {
    static native void make(Object object, int count);

    public static void main(String[] words) {
        System.load(words[0]);
        make(new Object(), Integer.parseInt(words[1]));
    }
}
