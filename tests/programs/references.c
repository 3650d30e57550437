// SPDX-License-Identifier: MIT
/* The native half of References.java. */
#include <jni.h>

JNIEXPORT void JNICALL Java_References_make(JNIEnv *env, jclass class, jobject object, jint count)
{
	(void)class;
	for (jint i = 0; i < count; i++) {
		jobject global = (*env)->NewGlobalRef(env, object);
		jweak weak = (*env)->NewWeakGlobalRef(env, object);
		jobject local = (*env)->NewLocalRef(env, object);

		(*env)->DeleteGlobalRef(env, global);
		(*env)->DeleteWeakGlobalRef(env, weak);
		(*env)->DeleteLocalRef(env, local);
	}
}
